"""What a replayed rank tells of events between collectives, and of its own end."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from prismdbg.model.moment import Moment
from prismdbg.protocol.messages import checked_event
from prismdbg.rank.debug.breakpoints import Breakpoints
from prismdbg.rank.debug.events import Events
from prismdbg.rank.debug.gate import Aim, Gate, Stop
from prismdbg.rank.debug.gate import BreakpointMode as Mode
from prismdbg.rank.replay.replayed_rank import Replaying
from prismdbg.rank.replay.verbs import _moving
from prismdbg.rank.tracing.tracer import Event, EventKind
from prismdbg.session.notices import Finished, parse_notice

TALLY = {"compared": 0, "fingerprints": 0, "synthesized": 0}


class Rank(Replaying):
    """At 3.2, with nothing behind it."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.gate, stops = Gate(lambda *_, **__: None), Breakpoints(lambda *_: None)
        self.events = Events(self.gate, stops)
        self.counters = cast(Any, SimpleNamespace(moment=Moment(3, 2)))
        self.replayer = cast(Any, SimpleNamespace(halts=SimpleNamespace(stops=stops), tally_json=lambda: TALLY))
        self.agent = cast(
            Any, SimpleNamespace(publish=lambda event, **data: self.told.append({"event": event, **data}))
        )
        self.ended = self.is_child = False


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Rank:
    monkeypatch.setattr("prismdbg.rank.debug.events.tracer.on_event", lambda *_: None)
    made = Rank()
    monkeypatch.setattr(made.gate, "stop", lambda _: None)
    return made


def operator(name: str, number: int) -> Event:
    return Event(
        kind=EventKind.OP, moment=Moment(3, 2, number), op=name, outer_op=name, module="", address=0, size_bytes=0,
        total_bytes=0, block=0, is_backend=False, device="", matched=(0,),
    )  # fmt: skip


def test_what_the_last_operator_before_an_exception_writes_is_its_own(rank: Rank) -> None:
    written = torch.ones(2)
    rank.gate.current = Stop("until", Moment(3, 2), {}, sys._getframe(), {})
    rank.gate.aim = Aim(stops=Mode.IGNORE, events={"writer_of": "written"})
    rank.events.aimed(rank.gate.aim)
    for number, name in enumerate(("aten::mul", "aten::add_"), 1):
        rank.events.happened(operator(name, number))
    written += 1
    try:
        raise ValueError("it raises")
    except ValueError as error:
        rank.exception({"type": "ValueError", "text": "", "traceback": []}, error)
    found = rank.events.told()["writer"]
    assert (found["op"], found["moment"]) == ("aten::add_", "3.2.2")


def test_hits_since_the_last_stop_are_told_where_the_program_ends(rank: Rank) -> None:
    hit = {"moment": "3.1", "stop": 2, "op": "all_reduce", "file": "train.py", "line": 7, "backward": False}
    rank.gate.aim.noted.append(hit)
    rank.end(1)
    finished = parse_notice(checked_event(rank.told[-1]))
    assert isinstance(finished, Finished) and finished.hits == (hit,)


def test_an_older_rank_ends_without_telling_hits() -> None:
    told = {"event": "finished", "code": 0, "moment": "3.2", "tally": TALLY}
    finished = parse_notice(checked_event(told))
    assert isinstance(finished, Finished) and finished.hits == ()


@pytest.mark.parametrize(("reason", "hit"), [("start", True), ("restored", False), ("parked", False)])
def test_what_comes_into_being_before_the_first_collective_changes(rank: Rank, reason: str, hit: bool) -> None:
    """At the program's start nothing is there yet; what a restored process has is not known."""
    rank.replayer.measure = cast(Any, SimpleNamespace(take=lambda _: None))
    stops = rank.replayer.halts.stops
    stops.replace([{"kind": "change", "expression": "weight", "number": 1}])
    rank.gate.current = Stop(reason, Moment(0), {}, None, {})
    _moving(rank)["resume"]({"stops": "note"})
    names = {"weight": torch.ones(2)}
    assert [stops.changed(stops.watched[0], names.__getitem__, None) for _ in range(2)] == [hit, False]
