"""Who did a graph's work itself and how long it really took, from logs; what an emulation and its passes are worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from logs import MILLISECOND_NS, Job

from prismdbg.errors import CapsuleError
from prismdbg.model import made_up
from prismdbg.predict.class_finder import FoundClass, RankClasses
from prismdbg.predict.cluster import ideal
from prismdbg.predict.entries import Entries, Provenance
from prismdbg.predict.folding import fold
from prismdbg.predict.job_graph import JobGraph, RankClass, by_position
from prismdbg.predict.kinds import Kinds
from prismdbg.predict.mesh import Mesh
from prismdbg.predict.origin import NOT_KNOWN, Source, Standing
from prismdbg.predict.simulate import simulate
from prismdbg.workflows.emulation_worth import EmulationWorth
from prismdbg.workflows.graph_origin import origin_of
from prismdbg.workflows.pass_errors import pass_errors
from prismdbg.workflows.recorded_step import recorded_step
from prismdbg.workflows.run_folder import write_json
from prismdbg.workflows.slice_entries import Source as SliceSource
from prismdbg.workflows.slice_entries import entries_of

MESH = Mesh.parse("dp=4")
LATE_NS = 4 * MILLISECOND_NS


def job() -> Job:
    """Rank 2 comes late to the only call of step 1."""
    found = Job(4)
    found.steps(1)
    found.call(late_ns={2: LATE_NS})
    found.now_ns += 9 * MILLISECOND_NS
    for rank in found.ranks:
        found.next_step(rank)
    return found


def slices(found: Job, *ranks: int) -> dict[int, Entries]:
    made = {}
    for rank in ranks:
        step = recorded_step(found.logs[rank], 1)
        assert step is not None
        source = SliceSource(
            computed=Provenance.RECORDED, split=Provenance.RECORDED, from_ns=step.from_ns, until_ns=step.until_ns
        )
        made[rank] = entries_of(step.graph, MESH, source)
    return made


class TestWhatARankReallyTook:
    def test_waiting_is_until_the_last_one_came(self) -> None:
        found = job()
        truths = origin_of(MESH, slices(found, 0, 1, 2, 3), found.logs, 1, is_emulated=False).truths

        transfer_ns = MILLISECOND_NS // 2
        assert [truth.waited_ns for truth in truths] == [LATE_NS, LATE_NS, 0, LATE_NS]
        assert [truth.blocked_ns - truth.waited_ns for truth in truths] == [transfer_ns] * 4
        assert all(truth.iteration_ns == truth.computed_ns + truth.blocked_ns for truth in truths)

    def test_without_a_members_log_nobody_knows_who_was_last(self) -> None:
        found = job()
        logs = {rank: log for rank, log in found.logs.items() if rank != 2}
        truths = origin_of(MESH, slices(found, 0, 1), logs, 1, is_emulated=False).truths

        assert [(truth.rank, truth.waited_ns) for truth in truths] == [(0, NOT_KNOWN), (1, NOT_KNOWN)]
        assert truths[0].blocked_ns == LATE_NS + MILLISECOND_NS // 2

    def test_the_simulation_against_it(self) -> None:
        """On links that take no time, the transfer is what is missing."""
        found = job()
        recorded = slices(found, 0, 1, 2, 3)
        origin = origin_of(MESH, recorded, found.logs, 1, is_emulated=False)
        classes = [(RankClass(name=str(rank), entries=entries), [rank]) for rank, entries in recorded.items()]
        timeline = simulate(replace(JobGraph.build(MESH, classes), origin=origin), ideal())
        errors = {error.component: error for error in timeline.fidelity.errors}
        iteration_ns = origin.truths[0].iteration_ns

        assert errors["computation"].mean == pytest.approx(0, abs=1e-6)
        assert errors["waiting"].mean == pytest.approx(0, abs=1e-3)
        assert errors["exposed communication"].worst == pytest.approx(-MILLISECOND_NS / 2 / iteration_ns, rel=1e-2)
        assert errors["iteration"].mean == pytest.approx(-MILLISECOND_NS / 2 / iteration_ns, rel=1e-2)

    def test_what_folding_ranks_into_a_class_costs(self) -> None:
        """Rank 2 was late before the call; as one of a class it is slower everywhere. The report says so."""
        found = job()
        recorded = slices(found, 0, 1, 2, 3)
        origin = origin_of(MESH, recorded, found.logs, 1, is_emulated=False)
        timeline = simulate(replace(fold(MESH, recorded), origin=origin), ideal())
        errors = {error.component: error for error in timeline.fidelity.errors}

        assert errors["computation"].mean == pytest.approx(0, abs=1e-6)
        assert errors["waiting"].mean < -0.1

    def test_what_was_emulated_is_no_truth(self) -> None:
        found = job()
        origin = origin_of(MESH, slices(found, 0), found.logs, 1, is_emulated=True)
        assert (origin.source, origin.truths) == (Source.EMULATED, ())


class TestWhoStandsForWhom:
    def test_by_the_mesh(self) -> None:
        found = job()
        standing = origin_of(MESH, slices(found, 0, 3), found.logs, 1, is_emulated=True).standing_at
        assert standing is not None
        assert standing.tolist() == [Standing.OWN, Standing.ASSUMED, Standing.ASSUMED, Standing.OWN]
        assert origin_of(MESH, slices(found, 0, 1, 2, 3), found.logs, 1, is_emulated=True).standing_at is None

    def test_by_classes_of_which_some_were_checked(self) -> None:
        mesh = Mesh.parse("pp=2,dp=3")
        classes = RankClasses(
            kinds=Kinds(mesh=mesh, begins={"pp": (0, 1), "dp": (0,)}),
            probed=("pp", "dp"),
            classes=(
                FoundClass(bases=(0,), ranks=3, checked_with=(2,)),
                FoundClass(bases=(3,), ranks=3, checked_with=()),
            ),
            ran=(0, 2, 3),
        )
        standing = origin_of(mesh, {}, {}, 1, is_emulated=True, classes=classes).standing_at
        own, checked, assumed = Standing.OWN, Standing.CHECKED, Standing.ASSUMED
        wanted = by_position(mesh, np.array([own, checked, checked, own, assumed, assumed]))
        assert standing is not None and standing.tolist() == wanted.tolist()


class TestPacedPasses:
    def test_the_last_one_counts(self, tmp_path: Path) -> None:
        ranks = [
            {"rank": 0, "simulated_ns": 980, "emulated_ns": 1000},
            {"rank": 1, "simulated_ns": 110, "emulated_ns": 100},
        ]
        passes = [{"number": 1, "ranks": []}, {"number": 2, "ranks": ranks}]
        write_json(tmp_path / "passes.json", {"clock": "wall", "passes": passes})

        (error,) = pass_errors(tmp_path)
        assert (error.component, error.ranks, error.worst_rank) == ("iteration", 2, 1)
        assert error.mean == pytest.approx(0.04) and error.worst == pytest.approx(0.1)
        assert error.against == "the emulation it paced (wall clock, pass 2)"

    def test_a_run_that_was_not_paced(self, tmp_path: Path) -> None:
        assert pass_errors(tmp_path) == ()
        write_json(tmp_path / "passes.json", {"clock": "wall", "passes": []})
        assert pass_errors(tmp_path) == ()

    def test_a_damaged_file(self, tmp_path: Path) -> None:
        write_json(tmp_path / "passes.json", {"clock": "wall", "passes": [{"number": 1, "ranks": [{"rank": 0}]}]})
        with pytest.raises(CapsuleError, match=r"passes.json: .*emulated_ns is missing"):
            pass_errors(tmp_path)


class TestAnEmulationsWorth:
    def test_nothing_is_concluded_from_what_was_made_up(self) -> None:
        received = {made_up.ECHO: 750, made_up.DONOR: 250}
        worth = EmulationWorth(ran=2, world=8192, received_bytes=received)

        assert worth.made_up_share == 0.75
        assert worth.lines() == [
            "what this is worth: 2 of 8,192 ranks ran; what they computed and allocated is real",
            "received 1 kB: 75.0% echo, 25.0% donor",
            "transfers and waits: none: peers were there at once",
            "do not conclude: anything about values, the loss among them: what peers sent was made up",
            "do not conclude: how long a step takes: `--pace`, or `prismdbg graph simulate`",
        ]

    def test_paced_and_with_real_values(self) -> None:
        lines = EmulationWorth(ran=1, world=2, received_bytes={made_up.DONOR: 8}, clock="virtual").lines()
        assert lines[2:] == ["transfers and waits: as the simulation says, on a virtual clock"]
        assert len(EmulationWorth(ran=1, world=2, received_bytes={}).lines()) == 3
