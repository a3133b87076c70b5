"""A script's places in the past over a debugger whose program has ended."""

from __future__ import annotations

import time
from typing import Any

import pytest

from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.expr.parser import parse
from prismdbg.model.moment import Moment
from prismdbg.script.language import BackTo, GoBack, Name
from prismdbg.script.place import Place
from prismdbg.script.rank import DebuggedRank
from prismdbg.session.answers import Originated, Phase, Wrote
from tests.unit.simulated_rank import SimulatedRank

PLACE = Place("checks.yaml", 1, 1)
ORIGIN = GoBack(place=PLACE, name=Name("born"), to=BackTo.ORIGIN)
WRITE = GoBack(place=PLACE, name=Name("written"), to=BackTo.WRITE, of=parse("x"))
WRITTEN = Moment(3, 3, 2)


def ended(**rank: Any) -> DebuggedRank:
    played = SimulatedRank(ops=2, nan_from=Moment(2, 1), **rank)
    debugger = Debugger(played, lambda _: None, recorded=played.moments, settings=Settings(bound_s=0.05))
    made = DebuggedRank(debugger, time.monotonic() + 60)
    made.begin(traced=False)
    return made


@pytest.mark.parametrize("steps_last", [False, True])
def test_a_place_is_looked_for_from_the_programs_end(steps_last: bool) -> None:
    rank = ended(steps_last=steps_last, writes=(Moment(3, 2, 2),))
    assert rank.go(None).phase is Phase.FINISHED
    for asked, kind in ((ORIGIN, Originated), (WRITE, Wrote), (ORIGIN, Originated)):
        found = rank.find(asked)
        assert isinstance(found.answer, kind) and found.answer.asked_at == Moment(3, 3)


def test_each_place_is_looked_for_from_the_exception_where_the_script_ended() -> None:
    rank = ended(raises=True, writes=(WRITTEN,))
    assert rank.go(None).reason == "exception"
    for _ in range(2):
        found = rank.find(WRITE)
        assert isinstance(found.answer, Wrote) and found.answer.moment == WRITTEN
