"""Where a replay is past B: what another thread still has to do there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tiny_log import TinyLog

from prismdbg.capsule.log.events import RankLog
from prismdbg.errors import PrismError
from prismdbg.model.collective import Group, State, TensorMeta
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.rank.c10d.call import Call
from prismdbg.rank.c10d.counters import Counters
from prismdbg.rank.debug.breakpoints import CallView
from prismdbg.rank.debug.gate import Gate
from prismdbg.rank.replay.prologue import Prologue
from prismdbg.rank.replay.replayer import OTHER_THREADS_S, Replayer
from tests.unit.logs import lone_collective


class Waits(threading.Condition):
    """The step is taken while somebody waits for it."""

    def __init__(self, counters: Counters) -> None:
        super().__init__()
        self._counters = counters
        self.bounds: list[float | None] = []

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        if not predicate():
            self.bounds.append(timeout)
            self._counters.begin_step(2)
        return bool(predicate())


@pytest.mark.parametrize(("recorded", "waited"), [("2.1", [OTHER_THREADS_S]), ("1.4", [])])
def test_what_the_record_issued_after_a_step_waits_for_it(recorded: str, waited: list[float]) -> None:
    """Else the replay ends before the step at which the parameters are compared."""
    record = replace(lone_collective(), moment=Moment.parse(recorded))
    log = RankLog(rank=0, pid=1, wall_offset_ns=0, collectives=[record])
    counters = Counters()
    counters.begin_step(1)
    replayer = Replayer(log, cast(Any, None), counters, Gate(lambda *_, **__: None), lambda *_, **__: None)
    replayer._served = waits = Waits(counters)

    replayer._await_step(cast(CallView, SimpleNamespace(identity=record.identity)))

    assert waits.bounds == waited


def told_by(log: RankLog) -> tuple[Replayer, list[dict[str, Any]]]:
    told: list[dict[str, Any]] = []

    def publish(event: str, **data: Any) -> None:
        told.append({"event": event, **data})

    return Replayer(log, cast(Any, None), Counters(), Gate(publish), publish), told


def test_the_last_recorded_collective_is_told_once_whatever_comes_then() -> None:
    """The process may end without another word: then it is known that it did so at its end."""
    records = [lone_collective(record_id=number, moment=Moment(0, number + 1)) for number in range(3)]
    replayer, told = told_by(RankLog(rank=0, pid=1, wall_offset_ns=0, collectives=records))
    for served in (0, 2, 2):
        replayer._serve(records[served])
    assert told == []
    replayer._serve(records[1])
    replayer._serve(records[1])
    assert [(event["event"], event["tally"]["missing"]) for event in told] == [("all_compared", 0)]


@pytest.mark.parametrize(
    ("state", "received", "is_synthesized"),
    [
        (State.COMPLETED, (), False),
        (State.COMPLETED, (TensorMeta((4,), "float32"),), True),  # what it brought is not in the capsule
        (State.FAILED, (), True),
        (State.SCHEDULED, (), True),
    ],
)
def test_what_was_in_flight_is_answered_as_recorded_or_said_to_be_synthesized(
    state: State, received: tuple[TensorMeta, ...], is_synthesized: bool
) -> None:
    record = lone_collective(state=state, outputs=received)
    log = RankLog(rank=0, pid=1, wall_offset_ns=0, collectives=[record])
    log.groups[record.group] = Group(name=record.group, ranks=(0, 1))
    replayer, told = told_by(log)
    assert replayer.rescue(record.record_id, record.op, [])
    assert [event["event"] for event in told] == ["synthesized"] * is_synthesized


@pytest.mark.parametrize(
    ("op", "expected"), [("allreduce_", [8.0, 8.0]), ("allgather_", [0.0, 0.0]), ("unheard_of_", [0.0, 0.0])]
)
def test_what_was_in_flight_is_synthesized_as_any_other(op: str, expected: list[float]) -> None:
    """A sum has what this rank sent, once for each member; what only others know is zero."""
    record = lone_collective(op=op, reduce_op="SUM", state=State.SCHEDULED)
    log = RankLog(rank=0, pid=1, wall_offset_ns=0, collectives=[record])
    log.groups[record.group] = Group(name=record.group, ranks=(0, 1, 2, 3))
    replayer, _ = told_by(log)
    mine = torch.full((2,), 2.0)
    assert replayer.rescue(record.record_id, record.op, [mine])
    assert mine.tolist() == expected


@pytest.mark.parametrize(("state", "sender"), [(State.COMPLETED, 2), (State.COMPLETED, 0), (State.SCHEDULED, 1)])
def test_who_sent_what_was_in_flight_from_any_source_is_told(state: State, sender: int) -> None:
    """As recorded, or the next rank where that is not known: the program looks up who that is."""
    record = lone_collective(
        op="recv_any_source_", is_p2p=True, state=state, source_rank=sender if state is State.COMPLETED else -1
    )
    log = RankLog(rank=5, pid=1, wall_offset_ns=0, collectives=[record])
    log.groups[record.group] = Group(name=record.group, ranks=(5, 6, 7))
    answer = told_by(log)[0].rescue(record.record_id, record.op, [])
    assert answer == sender and type(answer) is int


def test_what_a_logpoint_tells_is_held_against_what_peers_are_assumed_to_send() -> None:
    replayer, _ = told_by(RankLog(rank=0, pid=1, wall_offset_ns=0, collectives=[lone_collective(record_id=0)]))
    replayer._assumed_from = Moment(2)
    told = replayer.halts.stops.assumes
    assert told(Moment(2, 1), {"out"}) and not told(Moment(1, 1), {"out"})


@pytest.mark.parametrize("make", [lambda folder: told_by(RankLog(0, 1, 0))[0], lambda folder: Prologue(folder, 0)])
def test_a_call_that_a_graph_captures_is_an_error_before_a_tensor_is_touched(
    tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    """The call has no tensor here."""
    TinyLog(tmp_path)
    call = cast(Call, SimpleNamespace(spec=OPS["allreduce_"], is_captured=True))
    with pytest.raises(PrismError, match="a CUDA graph captures all_reduce, the next collective after 0") as raised:
        make(tmp_path).collective(call, lambda: None)
    assert "without CUDA graphs" in raised.value.hint
