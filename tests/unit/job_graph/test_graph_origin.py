"""Who did a graph's work itself and how long it really took, from logs; what an emulation and its passes are worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from prismdbg.emulate.assessment import EmulationWorth
from prismdbg.errors import CapsuleError
from prismdbg.job_graph.origin import origin_of
from prismdbg.job_graph.recorded_step import recorded_step
from prismdbg.job_graph.slice_entries import Source as SliceSource
from prismdbg.job_graph.slice_entries import entries_of
from prismdbg.jobs.storage.pass_errors import Passed, read_passes, with_passes
from prismdbg.jobs.storage.run_folder import write_json
from prismdbg.model import synthesis
from prismdbg.simulate.cluster.cluster import ideal
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.class_finder import FoundClass, RankClasses
from prismdbg.simulate.graph.entries import Entries, Provenance
from prismdbg.simulate.graph.folding import fold
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass, by_position
from prismdbg.simulate.graph.kinds import Kinds
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.graph.origin import NOT_KNOWN, Source, Standing
from tests.unit.logs import MILLISECOND_NS, Job

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


def slices(found: Job, *ranks: int, mesh: Mesh = MESH) -> dict[int, Entries]:
    made = {}
    for rank in ranks:
        step = recorded_step(found.logs[rank], 1)
        assert step is not None
        source = SliceSource(
            computed=Provenance.RECORDED, split=Provenance.RECORDED, from_ns=step.from_ns, until_ns=step.until_ns
        )
        made[rank] = entries_of(step.graph, mesh, source)
    return made


def passes_of(folder: Path, *, has_converged: bool, on_stream: bool = False, drift: float | None = None) -> Passed:
    """Of two passes; of rank 0 the last one knows each component. on_stream: rank 1's transfers were on a device.
    drift: rank 0's; None as in a file that does not have it."""
    components = {
        "computation": {"simulated_ns": 520, "emulated_ns": 500},
        "exposed communication": {"simulated_ns": 300, "emulated_ns": 300},
        "waiting": {"simulated_ns": 160, "emulated_ns": 200},
    }
    ranks = [
        {"rank": 0, "simulated_ns": 980, "emulated_ns": 1000, "components": components}
        | ({} if drift is None else {"drift": drift}),
        {"rank": 1, "simulated_ns": 110, "emulated_ns": 100, "components": {}, "on_stream": on_stream},
    ]
    passes = [{"number": 1, "ranks": []}, {"number": 2, "ranks": ranks}]
    held = {"clock": "wall", "until": 0.01, "has_converged": has_converged, "passes": passes}
    write_json(folder / "passes.json", held)
    found = read_passes(folder)
    assert found is not None
    return found


class TestWhatARankReallyTook:
    def test_waiting_is_until_the_last_one_came(self) -> None:
        found = job()
        truths = origin_of(MESH, slices(found, 0, 1, 2, 3), found.logs, 1, is_emulated=False).truths

        transfer_ns = MILLISECOND_NS // 2
        assert [truth.waited_ns for truth in truths] == [LATE_NS, LATE_NS, 0, LATE_NS]
        assert [truth.blocked_ns - truth.waited_ns for truth in truths] == [transfer_ns] * 4
        assert all(truth.iteration_ns == truth.computed_ns + truth.blocked_ns for truth in truths)

    def test_of_groups_of_one_name_each_waits_for_its_own_members(self) -> None:
        found, mesh = Job(4), Mesh.parse("dp=2,tp=2")
        for pair in ((0, 1), (2, 3)):
            found.group("tp", pair)
        found.steps(1)
        for pair in ((0, 1), (2, 3)):
            found.call(group="tp", only=pair, late_ns={pair[1]: LATE_NS})
        for rank in found.ranks:
            found.next_step(rank)
        truths = origin_of(mesh, slices(found, 0, 1, 2, 3, mesh=mesh), found.logs, 1, is_emulated=False).truths
        assert [truth.waited_ns for truth in truths] == [LATE_NS, 0, LATE_NS, 0]

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
        passed = passes_of(tmp_path, has_converged=True)
        assert (passed.clock, passed.passes, passed.until) == ("wall", 2, 0.01)
        errors = {error.component: error for error in passed.errors}
        iteration = errors["iteration"]
        assert (iteration.ranks, iteration.worst_rank) == (2, 1)
        assert iteration.mean == pytest.approx(0.04) and iteration.worst == pytest.approx(0.1)
        assert iteration.against == "the emulation it paced (wall clock, pass 2)"

    def test_each_component_is_a_share_of_the_iteration(self, tmp_path: Path) -> None:
        errors = {error.component: error for error in passes_of(tmp_path, has_converged=True).errors}
        assert list(errors) == ["iteration", "computation", "exposed communication", "waiting"]
        assert [(errors[name].ranks, errors[name].worst) for name in list(errors)[1:]] == [
            (1, pytest.approx(0.02)),
            (1, pytest.approx(0.0)),
            (1, pytest.approx(-0.04)),
        ]

    def test_what_has_not_converged_is_a_doubt_of_every_result(self, tmp_path: Path) -> None:
        passed = passes_of(tmp_path, has_converged=False)
        timeline = with_passes(simulate(fold(MESH, slices(job(), 0, 1, 2, 3)), ideal()), tmp_path)

        assert timeline.fidelity.errors == passed.errors
        (doubt,) = passed.doubts()
        assert doubt == (
            "the duration of a step closer than 10.00%: simulation and emulated ranks have not converged, rank 1's "
            "iteration, simulated less emulated, is +10.00% of an iteration"
        )
        assert f"not reliable: {doubt}" in timeline.fidelity.lines()
        changed = with_passes(simulate(fold(MESH, slices(job(), 0, 1, 2, 3)), ideal()), tmp_path, is_as_it_ran=False)
        assert changed.fidelity.errors == () and doubt in changed.fidelity.doubts

    @pytest.mark.parametrize(("drift", "apart"), [(1.02, "10.00%"), (1.3, "30.00%"), (0.8, "20.00%")])
    def test_how_long_a_rank_computed_is_part_of_it(self, drift: float, apart: str, tmp_path: Path) -> None:
        passed = passes_of(tmp_path, has_converged=False, drift=drift)
        said = f"of an iteration, and rank 0 computed {drift:.2f} times as long as scheduled"
        assert f"{said}; 1.00% was requested" in passed.line()
        (doubt,) = passed.doubts()
        assert doubt.startswith(f"the duration of a step closer than {apart}: ") and doubt.endswith(said)

    @pytest.mark.parametrize("drift", [None, 1.0, 0.991])
    def test_as_long_as_scheduled_is_not_said(self, drift: float | None, tmp_path: Path) -> None:
        assert "scheduled" not in passes_of(tmp_path, has_converged=False, drift=drift).line()

    def test_what_ran_on_a_device_was_not_compared(self, tmp_path: Path) -> None:
        assert passes_of(tmp_path, has_converged=False).is_apart
        passed = passes_of(tmp_path, has_converged=False, on_stream=True)
        assert (passed.on_stream, passed.errors, passed.is_apart) == ((1,), (), False)
        why = "the log does not have the device's work"
        assert passed.line() == (
            "as the simulation says, on a wall clock; the two were not compared: transfers of rank 1 were waits on a "
            f"device, and {why}"
        )
        assert passed.doubts() == (
            f"the duration of a step: simulation and emulated ranks were not compared, because {why}",
        )

    def test_what_has_converged_is_none(self, tmp_path: Path) -> None:
        assert passes_of(tmp_path, has_converged=True).doubts() == ()

    def test_a_run_that_was_not_paced(self, tmp_path: Path) -> None:
        assert read_passes(tmp_path) is None
        write_json(tmp_path / "passes.json", {"clock": "wall", "passes": []})
        assert read_passes(tmp_path) is None

    def test_a_damaged_file(self, tmp_path: Path) -> None:
        write_json(tmp_path / "passes.json", {"clock": "wall", "passes": [{"number": 1, "ranks": [{"rank": 0}]}]})
        with pytest.raises(CapsuleError, match=r"passes.json: .*emulated_ns is missing"):
            read_passes(tmp_path)


class TestAnEmulationsWorth:
    def test_nothing_is_concluded_from_what_was_made_up(self) -> None:
        received = {synthesis.ECHO: 750, synthesis.DONOR: 250}
        worth = EmulationWorth(ran=2, world=8192, received_bytes=received)

        assert worth.made_up_share == 0.75
        assert worth.lines() == [
            "fidelity: 2 of 8,192 ranks ran; their computations and allocations are real",
            "received 1 kB: 75.0% echo, 25.0% donor",
            "transfers and waits: none: peers answered immediately",
            "not reliable: all values, including the loss: the data of peers was synthesized",
            "not reliable: the duration of a step; use `--pace` or `prismdbg graph simulate` for that",
        ]

    def test_paced_and_with_real_values(self, tmp_path: Path) -> None:
        passed = passes_of(tmp_path, has_converged=True)
        lines = EmulationWorth(ran=1, world=2, received_bytes={synthesis.DONOR: 8}, passed=passed).lines()
        assert lines[0].startswith("fidelity: 1 of 2 ranks ran paced; ")  # others only had to be checked with
        assert lines[2:] == [
            "transfers and waits: as the simulation says, on a wall clock; it and the ranks agree to 1.00%, at worst "
            "rank 1's iteration, simulated less emulated, is +10.00% of an iteration"
        ]

    def test_what_tensors_on_a_device_leave_open_is_said(self) -> None:
        doubt = "how long ranks computed: tensors of rank 0 were on a device"
        worth = EmulationWorth(ran=1, world=2, received_bytes={synthesis.DONOR: 8}, devices=(doubt,))
        assert f"not reliable: {doubt}" in worth.lines()

    def test_not_converged(self, tmp_path: Path) -> None:
        """It never says that peers came as simulated without saying that they did not quite."""
        passed = passes_of(tmp_path, has_converged=False)
        lines = EmulationWorth(ran=1, world=2, received_bytes={synthesis.DONOR: 8}, passed=passed).lines()
        assert lines[2] == (
            "transfers and waits: as the simulation says, on a wall clock, but the two have not converged: after 2 "
            "passes rank 1's iteration, simulated less emulated, is +10.00% of an iteration; 1.00% was requested"
        )
        assert lines[3] == f"not reliable: {passed.doubts()[0]}"
        assert len(EmulationWorth(ran=1, world=2, received_bytes={}).lines()) == 3
