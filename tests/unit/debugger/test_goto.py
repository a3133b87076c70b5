"""`goto`: what it passes, what it refuses, and what it says where there is no such moment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from capsules import MANIFEST, make_capsule

from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.errors import UsageError
from prismdbg.jobs.replay.span import require_inside
from prismdbg.model.moment import Moment
from prismdbg.rank.debug.breakpoints import Breakpoints
from prismdbg.rank.debug.events import Events
from prismdbg.rank.debug.gate import Aim, Finish, Gate, Stop
from prismdbg.rank.debug.gate import BreakpointMode as Mode
from prismdbg.rank.tracing.tracer import Event, EventKind
from prismdbg.session import answers, notices
from prismdbg.session.breakpoint_line import parse_breakpoint
from prismdbg.session.breakpoints import BreakpointList
from tests.unit.simulated_rank import SimulatedRank

Told = list[notices.Notice]


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def debugger(told: Told) -> Debugger:
    """Steps 0 to 3 of three collectives each."""
    rank = SimulatedRank()
    made = Debugger(rank, told.append, recorded=rank.moments, settings=Settings(bound_s=0.05))
    made.begin()
    return made


def said(told: Told) -> list[str]:
    return [notice.text for notice in told if isinstance(notice, notices.Said)]


@pytest.mark.parametrize("moment", ["3.4", "99.1", "99"])
def test_beyond_the_record_is_refused_and_the_rank_stays(debugger: Debugger, moment: str) -> None:
    debugger.do("next 2")
    with pytest.raises(UsageError, match=r"after the capsule's end moment; this replay goes from 0\.0 to 3\.3"):
        debugger.do(f"goto {moment}")
    assert str(debugger.session.moment) == "0.2"


def test_where_there_is_no_such_moment_it_is_said_where_the_rank_stands(debugger: Debugger, told: Told) -> None:
    debugger.do("goto 1.999")
    assert str(debugger.session.moment) == "2.1"
    assert said(told) == ["this run has no moment 1.999: the rank is at 2.1, the first one after it"]


@pytest.mark.parametrize("line", ["goto 2", "2", "goto 2.1"])
def test_a_step_is_its_first_collective_and_needs_no_words(debugger: Debugger, told: Told, line: str) -> None:
    answer = debugger.do(line)
    assert isinstance(answer, answers.Arrived) and str(answer.moment) == "2.1"
    assert said(told) == []


def test_where_the_rank_stands_when_it_is_restored_is_a_place_to_go_to() -> None:
    """It has 0.2 behind it; the first collective that it issues is 0.3."""
    rank = SimulatedRank(parked=True, behind=2)
    made = Debugger(rank, lambda _: None, recorded=rank.moments[2:], settings=Settings(bound_s=0.05))
    made.begin()
    for line, returns in (("goto 0.2", []), ("goto 1.1", []), ("goto 0.2", [0]), ("goto 0.3", [0]), ("back", [0, 0])):
        answer = made.do(line)
        assert isinstance(answer, answers.Arrived) and answer.stop is not None
        assert answer.beginning == (answer.stop.reason == "parked") == (str(answer.moment) == "0.2")
        assert rank.returns == returns, line
    with pytest.raises(
        UsageError, match=r"0\.1 is before the capsule's start moment; this replay goes from 0\.2 to 3\.3"
    ):
        made.do("goto 0.1")


@pytest.mark.parametrize(("mode", "halts"), [(Mode.APPLY, True), (Mode.IGNORE, False)])
def test_a_way_between_collectives_passes_allocations_stops_only_where_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch, mode: Mode, halts: bool
) -> None:
    stood: list[Stop] = []
    gate, stops, wanted = Gate(lambda *_, **__: None), Breakpoints(lambda *_: None), BreakpointList()
    wanted.add(parse_breakpoint("allocation"))
    stops.replace(wanted.to_json())
    monkeypatch.setattr(gate, "stop", stood.append)
    monkeypatch.setattr("prismdbg.rank.debug.events.tracer.on_event", lambda *_: None)
    events = Events(gate, stops)
    gate.aim = Aim(stops=mode, events={"until": "1.1.9"})
    events.aimed(gate.aim)
    events.happened(allocation(matched=(0,)))
    assert bool(stood) is halts


@pytest.mark.parametrize("mode", [Mode.APPLY, Mode.NOTE])
def test_a_module_ends_with_the_first_operator_outside_of_it(monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    stood: list[Stop] = []
    gate = Gate(lambda *_, **__: None)
    monkeypatch.setattr(gate, "stop", stood.append)
    monkeypatch.setattr("prismdbg.rank.debug.events.tracer.on_event", lambda *_: None)
    events = Events(gate, Breakpoints(lambda *_: None))
    gate.aim = Aim(stops=mode, finish=Finish(module="layers.3", step=1), events={"finish": True})
    events.aimed(gate.aim)
    walked = ("layers.3", "layers.3.norm", "layers", "layers.3", "head")
    for op, module in enumerate(walked, 1):
        for kind in (EventKind.OP, EventKind.ALLOCATION):
            events.happened(allocation(kind=kind, module=module, moment=Moment(1, 1, op)))
    outside = [Moment(1, 1, 3), Moment(1, 1, 5)]
    if mode is Mode.NOTE:
        assert [hit["moment"] for hit in gate.aim.noted] == [str(moment) for moment in outside] and not stood
    else:
        assert [(stop.reason, stop.moment) for stop in stood] == [("finish", outside[0])]


def allocation(**changed: Any) -> Event:
    made: dict[str, Any] = {"kind": EventKind.ALLOCATION, "moment": Moment(1, 1, 3), "op": "aten::mm"}
    made |= {"outer_op": "aten::mm", "module": "", "address": 64, "size_bytes": 8, "total_bytes": 8, "block": 1}
    return Event(**(made | {"is_backend": False, "device": "cpu", "matched": (0,)} | changed))


@pytest.mark.parametrize("command", ["replay", "memory"])
def test_a_replay_until_outside_of_the_capsule_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    capsule = make_capsule(tmp_path / "capsule", replace(MANIFEST, moment_a=Moment(1, 2), replayable_from=Moment(1, 2)))
    for until, said, instead in (
        ("1.1", "has no collective before 1.2, but --until is 1.1", "1.2"),
        ("2.3", "ends at 2.2, but --until is 2.3", "2.2"),
        ("3", "ends at 2.2, but --until is 3.0", "2.2"),
    ):
        assert main.run([command, str(capsule.path), "--until", until]) == ExitCode.USAGE
        shown = capsys.readouterr().err
        assert f"error: capsule capsule {said}" in shown and f"--until {instead}, or leave it out" in shown
    for inside in (Moment(1), Moment(1, 2), Moment(2), Moment(2, 2), Moment(2, 2, 9)):
        require_inside(capsule.manifest, "capsule", "--until", inside)
