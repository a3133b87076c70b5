"""What a pass is simulated with, and how its ranks take turns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismdbg.capsule.log.events import Note, RankLog
from prismdbg.emulate import pacing
from prismdbg.emulate.pacing import (
    ROUND_STEPS,
    PaceRequest,
    Pass,
    RankPass,
    _cluster,
    _contention_ppm,
    _line,
    _moved_ns,
    steps_a_round,
)
from prismdbg.emulate.request import EmulateRequest
from prismdbg.settings import memory_room
from prismdbg.settings.emulation import ClockKind
from prismdbg.simulate.cluster.cluster import example
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.report.rank_parts import RankParts
from tests.unit.logs import Job

GIB = 1 << 30
SLOW_TRANSFERS = replace(example(), compute_overlap_ppm=1_250_000, transfer_overlap_ppm=2_000_000)


def request_of(clock: ClockKind = ClockKind.WALL) -> PaceRequest:
    emulate = EmulateRequest(output=Path("run"), command=("true",), world=2, mesh=Mesh.parse("dp=2"))
    return PaceRequest(emulate=emulate, cluster=SLOW_TRANSFERS, clock=clock)


class TestCluster:
    @pytest.mark.parametrize("clock", list(ClockKind))
    @pytest.mark.parametrize("number", [1, 2])
    def test_a_transfer_is_as_slow_beside_computation_as_calibrated(self, clock: ClockKind, number: int) -> None:
        assert _cluster(request_of(clock), number).transfer_overlap_ppm == 2_000_000

    def test_what_a_transfer_costs_is_felt_and_added_once(self) -> None:
        assert [_cluster(request_of(), number).compute_overlap_ppm for number in (1, 2)] == [1_250_000, 1_000_000]

    def test_it_takes_its_share_of_a_processor_while_it_lasts(self) -> None:
        assert _contention_ppm(SLOW_TRANSFERS) == 200_000


class TestRounds:
    def logs(self, count: int, own_bytes: int) -> list[RankLog]:
        data = {"peak_bytes": own_bytes + GIB, "shared_bytes": GIB, "log_bytes": 0}
        note, job = Note("resources", 0, data), Job(count)
        job.steps(2)
        return [replace(log, notes=[*log.notes, note]) for log in job.logs.values()]

    @pytest.mark.parametrize(
        ("count", "own_bytes", "steps"),
        [(2, GIB, ROUND_STEPS), (8, GIB, ROUND_STEPS), (1, GIB, 0), (9, 1, 0), (2, 11 * GIB, 0)],
    )
    def test_few_ranks_that_fit_run_in_turn(
        self, count: int, own_bytes: int, steps: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pacing, "room_bytes", lambda _: 20 * GIB)
        assert steps_a_round(self.logs(count, own_bytes)) == steps

    def test_what_a_container_leaves_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        logs, rooms = self.logs(2, 64 << 20), [GIB]
        monkeypatch.setattr(memory_room, "_rooms", lambda *_: rooms)
        assert steps_a_round(logs) == ROUND_STEPS
        rooms.append(200 << 20)
        assert steps_a_round(logs) == 0

    def test_ranks_on_devices_do_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pacing, "room_bytes", lambda _: 20 * GIB)
        logs = self.logs(2, GIB)
        call = logs[0].collectives[0]
        on_device = replace(call, inputs=tuple(replace(each, device="cuda:0") for each in call.inputs))
        assert steps_a_round([replace(logs[0], collectives=[on_device]), logs[1]]) == 0

    def test_where_their_memory_is_not_known_they_do_not(self) -> None:
        assert steps_a_round(list(Job(2).logs.values())) == 0


def test_the_drift_of_a_pass_is_said() -> None:
    parts = RankParts(computed_ns=10**6, shown_ns=0, waited_ns=0)
    found = RankPass(rank=3, simulated_ns=10**6, emulated_ns=10**6, steps=9, simulated=parts, emulated=parts)
    assert "as scheduled" not in _line(1, found)
    said = _line(1, replace(found, drift=1.0712))
    assert "it computed 1.07 times as long as scheduled, and so did its peers" in said
    assert replace(found, drift=1.0712).to_json()["drift"] == 1.0712


class TestAgreement:
    PARTS = RankParts(computed_ns=10**6, shown_ns=0, waited_ns=0)
    RANK = RankPass(rank=3, simulated_ns=10**6, emulated_ns=1_004_000, steps=9, simulated=PARTS, emulated=PARTS)

    @pytest.mark.parametrize(
        ("drift", "until", "agrees"),
        [(1.0, 0.01, True), (1.009, 0.01, True), (1.02, 0.01, False), (0.98, 0.01, False), (1.02, 0.03, True)],
    )
    def test_who_computes_longer_than_scheduled_does_not_agree(self, drift: float, until: float, agrees: bool) -> None:
        """What was simulated has been moved by the drift, so that the difference does not show it."""
        ranks = (self.RANK, replace(self.RANK, rank=4, drift=drift))
        assert Pass(number=1, iteration_ns=10**6, ranks=ranks).agrees(until) is agrees

    @pytest.mark.parametrize("changed", [{"emulated_ns": 1_020_000}, {"on_stream": True}])
    def test_nor_do_those_that_are_apart_or_not_compared(self, changed: dict[str, Any]) -> None:
        ranks = (self.RANK, replace(self.RANK, **changed))
        assert not Pass(number=1, iteration_ns=10**6, ranks=ranks).agrees(0.01)

    @pytest.mark.parametrize(("drift", "iteration_ns"), [(1.0, 1000), (1.05, 1040), (0.9, 920)])
    def test_a_simulated_time_moves_with_the_drift(self, drift: float, iteration_ns: int) -> None:
        assert _moved_ns(1000, 1080, drift) == iteration_ns


def test_parts_move_with_the_drift() -> None:
    here, there = (RankParts(computed_ns=ns, shown_ns=50, waited_ns=200 - ns) for ns in (100, 110))
    assert here.moved(there, 0.5) == RankParts(computed_ns=105, shown_ns=50, waited_ns=95)
    assert here.moved(there, -1.0) == RankParts(computed_ns=90, shown_ns=50, waited_ns=110)
