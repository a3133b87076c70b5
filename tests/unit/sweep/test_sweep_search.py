"""A fast search: which configurations run, and what it can have missed."""

from __future__ import annotations

import pytest

from prismdbg.errors import UsageError
from prismdbg.render import sweep_text
from prismdbg.sweep.result import Result, State
from prismdbg.sweep.search import Search, best, left_out, regret

MIB = 1 << 20


def done(name: str, ms: int, peak_mib: int = 100) -> Result:
    taken = ms * 1_000_000
    return Result(
        name=name, values={}, state=State.DONE, middle_ns=taken, iteration_ns=(taken,), peak_bytes=peak_mib * MIB
    )


PREDICTED = [done("a", 40), done("b", 10, 900), done("c", 30), done("d", 20), done("e", 50)]
IMPOSSIBLE = Result(name="f", values={}, state=State.IMPOSSIBLE, why="no mesh")


def test_the_fastest_that_fit_are_run() -> None:
    assert [each.name for each in best(PREDICTED, 0, 0)] == ["b", "d"]
    assert [each.name for each in best(PREDICTED, 0, 500 * MIB)] == ["d", "c"]
    assert [each.name for each in best([*PREDICTED, IMPOSSIBLE], 3, 0)] == ["b", "d", "c"]
    assert [each.name for each in best([done(str(n), n) for n in range(1, 13)], 0, 0)] == ["1", "2", "3"]


def test_what_did_not_run_says_what_was_predicted() -> None:
    assert left_out(IMPOSSIBLE, 0) is IMPOSSIBLE
    assert left_out(PREDICTED[0], 0).why == "predicted 40 ms"
    assert left_out(PREDICTED[1], 500 * MIB).why == "predicted 10 ms, and it does not fit"
    (row,) = sweep_text.rows([left_out(PREDICTED[0], 0)], 0)
    assert row[-1] == "left out: predicted 40 ms"


def test_the_regret_takes_the_error_of_what_ran_for_what_did_not() -> None:
    ran = [done("d", 30), done("b", 12)]  # 1.5 and 1.2 times the prediction
    results = [*ran, *(left_out(each, 0) for each in PREDICTED if each.name in "ace")]
    found = regret(results, PREDICTED)
    assert found is not None and (found.least, found.greatest) == (1.2, 1.5)
    assert found.most == 0, "the best left out takes 36 ms at least"
    slow = [done("b", 45), done("d", 20), *(left_out(each, 0) for each in PREDICTED if each.name in "ace")]
    assert regret(slow, PREDICTED).most == 0  # type: ignore[union-attr]
    slower = [done("b", 45), done("d", 60), *(left_out(each, 0) for each in PREDICTED if each.name in "ace")]
    assert regret(slower, PREDICTED).most == pytest.approx(45 / (30 * 3) - 1 if 45 > 90 else 0)  # type: ignore[union-attr]
    wrong = [done("d", 60), done("b", 31), left_out(done("c", 30), 0)]
    assert regret([*wrong[:1], wrong[2]], [done("d", 61), done("c", 30)]).most == pytest.approx(  # type: ignore[union-attr]
        60 / (30 * 60 / 61) - 1
    )
    assert "at most 103.3%" in sweep_text.regret(
        regret([wrong[0], wrong[2]], [done("d", 61), done("c", 30)])  # type: ignore[arg-type]
    )


def test_without_anything_left_out_there_is_no_regret() -> None:
    assert regret(PREDICTED, PREDICTED) is None
    assert regret([left_out(each, 0) for each in PREDICTED], PREDICTED) is None


def test_the_regret_is_that_of_what_fits() -> None:
    """`a` was predicted to fit, is the fastest, and its real peak is over the cap: it is not the one that is named."""
    predicted = [done("a", 1000), done("b", 2000), done("c", 1500)]
    left = left_out(predicted[2], 500 * MIB)
    found = regret([done("a", 1000, 900), done("b", 2000), left], predicted, 500 * MIB)
    assert found is not None and found.most == pytest.approx(2000 / 1500 - 1)
    assert regret([done("a", 1000, 900), left], predicted, 500 * MIB) is None, "nothing that fits ran"


def test_a_line_whose_quotes_stay_open_is_refused() -> None:
    assert Search(line="m.yaml --batch '{mbs}'").words() == ("m.yaml", "--batch", "{mbs}")
    with pytest.raises(UsageError, match="cannot be split into words"):
        Search(line="m.yaml '").words()
