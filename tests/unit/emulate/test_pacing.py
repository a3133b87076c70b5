"""What a pass is simulated with, and how its ranks take turns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prismdbg.capsule.log.events import Note, RankLog
from prismdbg.emulate import pacing
from prismdbg.emulate.pacing import ROUND_STEPS, PaceRequest, RankPass, _cluster, _contention_ppm, _line, steps_a_round
from prismdbg.emulate.request import EmulateRequest
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
        monkeypatch.setattr(pacing, "_available_bytes", lambda: 20 * GIB)
        assert steps_a_round(self.logs(count, own_bytes)) == steps

    def test_ranks_on_devices_do_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pacing, "_available_bytes", lambda: 20 * GIB)
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


def test_parts_move_with_the_drift() -> None:
    here, there = (RankParts(computed_ns=ns, shown_ns=50, waited_ns=200 - ns) for ns in (100, 110))
    assert here.moved(there, 0.5) == RankParts(computed_ns=105, shown_ns=50, waited_ns=95)
    assert here.moved(there, -1.0) == RankParts(computed_ns=90, shown_ns=50, waited_ns=110)
