"""Every verb with what it does not take: one clear answer, nothing moved, and never a defect."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.debugger.memory_verbs import MemoryVerbs
from prismdbg.errors import Defect, FacilityError, PrismError, UsageError
from prismdbg.session.line import VERBS, Takes, Verb
from tests.unit.simulated_rank import SimulatedRank

WRONG = (
    "", "x", "]", "-1", "0", "1 2 3", "99999999999", "1.2.3.4", "99.1", "x y z", "٣", "ü ☃ ｎ", '"', "\0", "\x1b[31m",
    "if", "on", "peer", "nan nan", "train.py:0", "train.py:99999999999", "change 5", "5", "wrote", "allocated",
    "wrote step", "diff", "export", "export \0", "export " + "x" * 3000, "peak x", "live x", "size x", "--", "!",
    "a" * 3900, "on " + "a" * 3000, "in " + "ü" * 3000, "local." + "a" * 900, "(" * 900, "1" * 39 + " ** " + "9" * 39,
)  # fmt: skip
LONGEST = 240
STANDS = {"at a collective": ("goto 2.1",), "at its beginning": (), "ended": ("continue",), "lost": ("goto 2.1", "")}


def debugger(lines: tuple[str, ...], **options: Any) -> Debugger:
    rank = SimulatedRank(**options)
    made = Debugger(rank, lambda _: None, recorded=rank.moments, settings=Settings(bound_s=0.05))
    made.begin()
    for line in lines:
        if line:
            made.do(line)
        else:
            rank.kill()
            made.poll(0.0)
    return made


@pytest.fixture(autouse=True)
def no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated rank writes none."""

    def trace(_: MemoryVerbs) -> NoReturn:
        raise FacilityError("nothing is traced here")

    monkeypatch.setattr(MemoryVerbs, "trace", trace)


@pytest.mark.parametrize("parked", [False, True], ids=["started", "restored"])
@pytest.mark.parametrize("where", STANDS)
@pytest.mark.parametrize("verb", [verb for verb in Verb if verb is not Verb.QUIT])
def test_what_a_verb_does_not_take_is_refused_in_a_line(verb: Verb, where: str, parked: bool) -> None:
    for argument in WRONG:
        try:
            debugger(STANDS[where], parked=parked).do(f"{verb} {argument}")
        except Defect as error:
            pytest.fail(f"{verb} {argument[:60]!r}: {error}")
        except PrismError as error:
            first, *more = str(error).splitlines()
            assert 0 < len(first) <= LONGEST and len(more) <= 2, (verb, argument[:60], first)
            assert all(len(line) <= LONGEST for line in (*more, *error.hint.splitlines()) if "use one of: " not in line)


@pytest.mark.parametrize(
    "line",
    [
        *(f"{verb} x" for verb in Verb if VERBS[verb].takes is Takes.NOTHING),
        *(f"{verb} {count}" for verb in ("next", "step", "rn", "rs") for count in ("0", "x", "1000001", "99999999999")),
        *(f"goto {text}" for text in ("", "x", "99.1", "1.2.3.4")),
        *(
            f"break {text}"
            for text in ("", "nan nan", "train.py:0", "train.py:99999999999", "change 5", "in " + "a" * 201)
        ),
        "watch! 5",
        "condition 9 step > 1",
        "ignore 1 x",
        "restart 9",
        "memory nothing such",
        "help nothing",
    ],
)
def test_what_is_refused_leaves_the_rank_where_it_stands(line: str) -> None:
    one = debugger(("goto 2.1",))
    rank: Any = one.driver.travel
    asked = len(rank.asked)
    with pytest.raises(UsageError):
        one.do(line)
    assert len(rank.asked) == asked and str(one.session.moment) == "2.1" and not one.session.breakpoints.all


def test_a_word_that_stands_first_is_said_to_do_so() -> None:
    with pytest.raises(UsageError) as refused:
        debugger(()).do("break all_reduce nan")
    assert refused.value.hint == "write nan first and only once: break nan"
