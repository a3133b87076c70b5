"""Times with intervals, and what may be concluded from them."""

from __future__ import annotations

import io
import json
import random
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from prismdbg.cli.commands import sweep
from prismdbg.errors import CapsuleError
from prismdbg.render.console import columns
from prismdbg.render.sweep_page import page
from prismdbg.render.sweep_text import HEADER, NUMBERS, conclusion, doubts, fitted, rows, worth
from prismdbg.sweep.request import How, SweepRequest
from prismdbg.sweep.result import Interval, Result, State, fastest, pareto
from prismdbg.sweep.space import Space

MILLION = 1_000_000


def result(name: str, middle_ms: float, peak_mib: int | None = None, spread_ms: float = 0.5, **more: Any) -> Result:
    middle_ns = round(middle_ms * MILLION)
    spread_ns = round(spread_ms * MILLION)
    return Result(
        name=name,
        values={"a": name},
        state=State.DONE,
        mesh="dp=2",
        middle_ns=middle_ns,
        iteration_ns=(middle_ns - spread_ns, middle_ns, middle_ns + spread_ns),
        peak_bytes=None if peak_mib is None else peak_mib << 20,
        **more,
    )


def test_an_interval_of_few_values_is_their_range_and_holds_the_middle() -> None:
    assert Interval.of(5, (4, 6, 7)) == Interval(5, 4, 7)
    assert Interval.of(3, (4, 6, 7)) == Interval(3, 3, 7)
    assert Interval.of(3, ()) == Interval(3, 3, 3, is_known=False)


@pytest.mark.parametrize(
    ("count", "outside"),
    [(6, 0), (8, 0), (9, 1), (12, 2), (20, 5), (25, 7), (1000, 468), (1001, 468), (200_000, 99_560)],
)
def test_an_interval_of_many_values_is_that_of_their_median(count: int, outside: int) -> None:
    """Up to 25 the numbers are those of tables of the sign test."""
    values = list(range(count))
    found = Interval.of(round(median(values)), values)
    assert (found.low, found.high) == (values[outside], values[-1 - outside])


def test_it_holds_the_median_as_often_as_it_says() -> None:
    drawn = random.Random(7)
    hits = 0
    for _ in range(400):
        values = [round(1e6 * drawn.expovariate(1)) for _ in range(15)]
        found = Interval.of(round(median(values)), values)
        hits += found.low <= 693_147 <= found.high  # ln 2
    assert hits >= 0.93 * 400


def test_one_that_is_clear_of_the_others_is_the_fastest() -> None:
    results = [result("a", 20), result("b", 10), result("c", 12)]
    assert [each.name for each in fastest(results)] == ["b"]
    assert conclusion(results, 0) == ["fastest: b, 10 ms per iteration"]


@pytest.mark.parametrize("single", ["a", "b"])
def test_of_a_single_measurement_there_is_no_interval_and_no_winner(single: str) -> None:
    results = [result("a", 20), result("b", 10), result("c", 30)]
    results = [replace(each, iteration_ns=(each.middle_ns,)) if each.name == single else each for each in results]
    assert [row[HEADER.index("interval")] == "-" for row in rows(results, 0)] == [single == name for name in "bac"]
    (line,) = conclusion(results, 0)
    assert line.startswith(f"no winner: b has the shortest time, but a single step has no interval: {single}; ")


def test_there_is_no_winner_where_intervals_overlap() -> None:
    results = [result("a", 20), result("b", 10, spread_ms=2), result("c", 12)]
    assert [each.name for each in fastest(results)] == ["b", "c"]
    (line,) = conclusion(results, 0)
    assert line.startswith("no winner: b has the shortest time") and line.endswith(": c")


def test_what_the_times_rest_on_is_said_once_of_all_that_cannot_be_told_apart() -> None:
    values, shapes = "all values: nothing ran", "times of {} shapes of operators: they are not between samples"
    modelled: Any = {"worth": "of the time 99.6% modelled, 0.4% assumed"}
    results = [
        result("tp=1", 20, doubts=(values, shapes.format(3)), **modelled),
        result("tp=2", 20.1, doubts=(values, shapes.format("1,031")), **modelled),
        *(result(f"tp={n}", 20.2, worth="of the time 98.1% modelled, 1.9% assumed", doubts=(values,)) for n in (4, 8)),
        result(
            "tp=16",
            90,
            worth="all assumed",
            doubts=("times of dropout, estimated by its bytes: OPS has no samples of it",),
        ),
    ]
    assert worth(results, 0) == [
        "fidelity of tp=1, tp=2, tp=4 and 1 other: of the time 98.1 to 99.6% modelled, 0.4 to 1.9% assumed"
    ]
    assert doubts(results, 0) == [
        f"not reliable: {values}",
        f"not reliable for tp=1, tp=2: {shapes.format('3 to 1,031')}",
    ]
    assert doubts(results[-1:], 0) == [
        "not reliable: times of dropout, estimated by its bytes: OPS has no samples of it"
    ]


def test_numbers_within_names_are_no_amounts() -> None:
    said = [result(f"n={n}", 20, doubts=(f"sizes along tp={n}: they are unchanged",)) for n in (2, 4)]
    assert doubts(said, 0) == [f"not reliable for n={n}: sizes along tp={n}: they are unchanged" for n in (2, 4)]


def test_what_does_not_fit_into_the_memory_is_not_the_fastest() -> None:
    results = [result("a", 20, 100), result("b", 10, 900), result("c", 5)]
    assert [each.name for each in fastest(results, 500 << 20)] == ["c"], "of which it is not known"
    assert [each.name for each in fastest(results[:2], 500 << 20)] == ["a"]
    assert [row[8] for row in rows(results, 500 << 20)] == ["-", "no", "yes"]
    assert conclusion([results[1]], 500 << 20) == ["no configuration has a time that fits"]


def test_those_that_nothing_beats_in_time_and_memory() -> None:
    results = [result("a", 20, 100), result("b", 10, 900), result("c", 15, 900), result("d", 30, 100), result("e", 1)]
    assert [each.name for each in pareto(results)] == ["b", "a"]


def test_failed_and_impossible_ones_come_last_and_say_why() -> None:
    failed = Result(name="x", values={}, state=State.FAILED, mesh="dp=2", why="it ended")
    impossible = Result(name="y", values={}, state=State.IMPOSSIBLE, why="8 is not divisible")
    found = rows([failed, impossible, result("a", 20, tokens=4096)], 0)
    assert [row[0] for row in found] == ["a", "x", "y"]
    assert [row[-1] for row in found[1:]] == ["failed: it ended", "impossible: 8 is not divisible"]
    assert found[0][9] == "204,800" and all(len(row) == len(HEADER) for row in found)


def test_a_reason_that_several_have_is_said_once() -> None:
    failed = [Result(name=name, values={}, state=State.FAILED, why="no GPU") for name in "xyz"]
    other = Result(name="o", values={}, state=State.IMPOSSIBLE, why="no GPU")
    found = rows([*failed, other], 0)
    assert [row[-1] for row in found] == ["failed: no GPU", "failed: as x", "failed: as x", "impossible: no GPU"]
    assert HEADER[-1] == "note"


REASON = "rank 0 failed: `python train.py --tp 4` ended with 1; see s/trials/tp=4/output.txt"


def compared() -> list[tuple[str, ...]]:
    shares: Any = {
        "exposed": {"tp": 0.1, "dp": 0.03},
        "message_bytes": {"tp": 123_456, "dp": 7_654_321},
        "tokens": 4096,
    }
    failed = Result(name="tp=4", values={}, state=State.FAILED, mesh="pp=1,dp=1,tp=4", why=REASON)
    return rows([result("tp=1", 20, 100, **shares), result("tp=2", 30, 90, **shares), failed], 0)


@pytest.mark.parametrize("room", [60, 80, 100, 120, 150, 400])
def test_a_table_fits_its_terminal_and_names_what_it_leaves_out(room: int) -> None:
    table = fitted(compared(), room)
    lines = columns(table.header, table.rows, right=NUMBERS).splitlines()
    assert all(len(line) <= room for line in lines), lines
    assert sorted({*table.header, *table.left_out}) == sorted(HEADER) and not {*table.header} & {*table.left_out}
    assert {"configuration", "iteration", "note"} <= {*table.header}
    if REASON not in lines[-1]:
        assert table.notes == (f"tp=4: failed: {REASON}",) and lines[-1].endswith(" …")
    assert (room == 400) == (not table.left_out)


def test_columns_without_a_value_go_first() -> None:
    assert fitted(compared(), 150).left_out == ("mesh", "fits", "recomputed"), "no cap was given, nothing predicted"


def test_a_sweep_without_configurations_has_a_table() -> None:
    assert fitted([], 40).rows == []


WORTH = "of the time 49.8% real, 49.8% modelled, 0.4% assumed, and a word that is too far to the right"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("out", [Terminal(), io.StringIO()], ids=["terminal", "pipe"])
def test_only_a_terminal_lacks_columns(out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout", out)
    request = SweepRequest(output=Path("s"), space=Space.parse(2, "dp", ()), command=(), how=How.EMULATE)
    sweep._show([result("tp=1", 20, 100, exposed={"tp": 0.1}, worth=WORTH)], 0, request)
    lines = out.getvalue().splitlines()
    assert ("messages" in lines[0]) == (not out.isatty())
    assert not out.isatty() or max(map(len, lines)) <= 80
    said = next(each for each in lines if each.startswith("fidelity of tp=1"))
    assert (said == f"fidelity of tp=1: {WORTH}") == (not out.isatty())


def test_the_share_that_is_recomputed_has_a_column() -> None:
    found = rows([result("a", 20, recomputed=0.251), result("b", 30)], 0)
    column = HEADER.index("recomputed")
    assert [row[column] for row in found] == ["25.1%", "-"]


def test_a_result_is_read_as_it_was_written() -> None:
    written = result(
        "a", 20, 3, exposed={"tp": 0.25}, late={"dp": 0.5}, idle_share=0.1, worth="all real", tokens=7, doubts=("x",)
    )
    stored = json.loads(json.dumps(written.to_json()))
    assert Result.from_json(stored, "here") == written
    del stored["doubts"]
    assert Result.from_json(stored, "here").doubts == (), "an older version kept none"


@pytest.mark.parametrize(
    "wrong", [{"state": "finished"}, {"middle_ns": "1"}, {"iteration_ns": [1.5]}, {"exposed": {"tp": "x"}}, {"why": 1}]
)
def test_a_damaged_result_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(CapsuleError):
        Result.from_json({**json.loads(json.dumps(result("a", 20).to_json())), **wrong}, "here")


def test_labels_of_the_chart_do_not_lie_on_each_other() -> None:
    near = [result(f"tp=2,pp=4,number={n}", 20 + n / 100, 900 - n) for n in range(12)]
    far = [result("far", 40, 100)]
    label = r'<text x="([0-9.]+)" y="([0-9.]+)" fill="currentColor">((?:tp|far)[^<]*)</text>'
    labels = re.findall(label, page([*near, *far], 0))
    boxes = [(float(x), float(y), float(x) + 6.5 * len(name)) for x, y, name in labels]
    assert "far" in {name for _, _, name in labels} and 2 <= len(labels) < 13, "those without room are left to titles"
    for one, other in combinations(boxes, 2):
        assert abs(one[1] - other[1]) >= 12 or one[2] <= other[0] or other[2] <= one[0]


def test_the_page_has_all_and_escapes_what_programs_wrote() -> None:
    failed = Result(name="x", values={}, state=State.FAILED, why="<script>alert(1)</script>")
    text = page([result("a", 20, 100), result("b", 10, 900), failed], 500 << 20)
    assert "<script>" not in text and "&lt;script&gt;" in text
    assert text.count("<circle") == 2 and text.count("stroke-dasharray") == 1
    assert "<svg" not in page([result("a", 20)], 0)


def test_the_page_says_what_is_not_reliable_before_it_draws() -> None:
    text = page([result("a", 20, 100, doubts=("all of it: guessed",))], 0)
    assert text.index("not reliable: all of it") < text.index("<svg")
