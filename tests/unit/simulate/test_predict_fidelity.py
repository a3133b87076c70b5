"""What a result says of itself: who ran, what stands in for others, what is beyond the measured, how far it is off."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from prismdbg.simulate.assessment.fidelity import Ran
from prismdbg.simulate.cluster import cluster_file, cluster_text
from prismdbg.simulate.cluster.calibration import Sample, calibrate_model
from prismdbg.simulate.cluster.cluster import Calibration, ClusterModel, Fit, Tier, ideal
from prismdbg.simulate.cluster.curve import Curve
from prismdbg.simulate.cluster.transfer import Geometry
from prismdbg.simulate.engine.changes import Changes, Delay
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.entries import Provenance
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.graph.origin import Origin, Source, Standing, Truth

SECOND_A_GB = Tier(name="only", spans=0, latency_ns=0, rate=10**9)
MEASURED = ClusterModel(
    tiers=(SECOND_A_GB,),
    is_measured=True,
    calibration=Calibration(
        machine="a machine",
        backend="gloo",
        date="2026-01-01",
        fits={"all_reduce": Fit(median_ppm=1000, largest_ppm=42_000, groups=(2, 4), sizes_bytes=(256, 4096))},
    ),
)


def job(mesh: str, writer: EntryWriter, ranks: Iterable[int] | None = None) -> JobGraph:
    found = Mesh.parse(mesh)
    return JobGraph.build(found, [(RankClass(name="all", entries=writer.done()), ranks or range(found.world))])


def reducing(size_bytes: int = 1000, provenance: Provenance = Provenance.REAL) -> EntryWriter:
    writer = EntryWriter()
    writer.compute(3000, provenance=provenance)
    writer.collective("all_reduce", "dp", size_bytes)
    return writer


def reducing_along(axis: str) -> EntryWriter:
    writer = EntryWriter()
    writer.collective("all_reduce", axis, 1000)
    return writer


def standing(*at: Standing) -> Origin:
    return Origin(source=Source.EMULATED, standing_at=np.array(at, dtype=np.uint8))


class TestWhoRan:
    def test_times_of_others_are_no_ones_own(self) -> None:
        graph = replace(
            job("dp=4", reducing()),
            origin=standing(Standing.OWN, Standing.CHECKED, Standing.CHECKED, Standing.ASSUMED),
        )
        fidelity = simulate(graph, MEASURED).fidelity

        assert fidelity.ran == Ran(own=1, checked=2, assumed=1)
        shares = {p: fidelity.time_share(p, "computation") for p in Provenance}
        assert shares[Provenance.REAL] == 0.25
        assert shares[Provenance.MODELLED] == 0.5
        assert shares[Provenance.ASSUMED] == 0.25
        assert fidelity.time_share(Provenance.MODELLED, "communication") == 1.0, "a transfer's time is the model's"
        assert fidelity.bytes_share(Provenance.REAL, "communication") == 0.25
        text = "\n".join(fidelity.lines())
        assert "1 of 4 ranks ran; 2 represented by a class with a second member that agreed" in text
        assert "the work of 1 of 4 ranks: only the mesh implies that it is the work of the ranks that ran" in text

    def test_stretching_adds_ranks_nobody_ran(self) -> None:
        graph = replace(job("dp=2,tp=2", reducing()), origin=Origin(source=Source.EMULATED)).stretched("dp", 8)
        fidelity = simulate(graph, ideal()).fidelity

        assert fidelity.ran == Ran(own=4, checked=0, assumed=12)
        assert any("along dp 2 to 8: they are unchanged" in doubt for doubt in fidelity.doubts)
        own = graph.origin.standing_at
        assert own is not None and own.reshape(8, 2)[:2].max() == Standing.OWN < own.reshape(8, 2)[2:].min()

    def test_a_job_made_smaller(self) -> None:
        graph = replace(job("dp=8", reducing()), origin=standing(*[Standing.CHECKED] * 8)).stretched("dp", 3)
        assert simulate(graph, ideal()).fidelity.ran == Ran(own=0, checked=3, assumed=0)

    @pytest.mark.parametrize(
        ("source", "said"),
        [
            (Source.EMULATED, "including the loss: the data of peers was synthesized"),
            (Source.RECORDED, "nothing was computed, only timed"),
            (Source.ARITHMETIC, "the graph is calculated, nothing ran"),
        ],
    )
    def test_values_are_never_claimed(self, source: Source, said: str) -> None:
        graph = replace(job("dp=2", reducing()), origin=Origin(source=source))
        assert any(said in doubt for doubt in simulate(graph, ideal()).fidelity.doubts)

    @pytest.mark.parametrize(("mesh", "is_said"), [("dp=2", False), ("dp=4", True)])
    def test_a_job_that_is_shown_as_it_was_recorded_did_compute(self, mesh: str, is_said: bool) -> None:
        """Not where ranks are added."""
        writer = EntryWriter()
        writer.compute(3000, provenance=Provenance.RECORDED)
        writer.collective("all_reduce", "dp", 1000, duration_ns=500, provenance=Provenance.RECORDED)
        graph = replace(job("dp=2", writer), origin=Origin(source=Source.RECORDED))
        graph = graph if mesh == "dp=2" else graph.stretched("dp", 4)
        doubts = simulate(graph, ideal()).fidelity.doubts
        assert any("nothing was computed" in doubt for doubt in doubts) is is_said


class TestTheClusterModel:
    def doubts(self, graph: JobGraph, cluster: ClusterModel) -> str:
        return "\n".join(simulate(graph, cluster).fidelity.doubts)

    def test_how_far_it_was_off_where_it_was_measured(self) -> None:
        assert "closer than 4.2%: this is the largest error of the model of all_reduce" in self.doubts(
            job("dp=4", reducing()), MEASURED
        )

    def test_an_error_above_a_thousand_percent_has_no_exponent(self) -> None:
        assert MEASURED.calibration is not None
        fits = {"all_reduce": replace(MEASURED.calibration.fits["all_reduce"], largest_ppm=11_582_000)}
        far = replace(MEASURED, calibration=replace(MEASURED.calibration, fits=fits))
        assert "closer than 1,160%: this is" in self.doubts(job("dp=4", reducing()), far)

    @pytest.mark.parametrize(("mesh", "size_bytes"), [("dp=8", 1000), ("dp=4", 8000), ("dp=2", 100)])
    def test_groups_and_sizes_that_were_not_measured(self, mesh: str, size_bytes: int) -> None:
        said = "100% of the communication time, which is in groups or of sizes that were not measured"
        assert said in self.doubts(job(mesh, reducing(size_bytes)), MEASURED)
        assert said not in self.doubts(job("dp=4", reducing()), MEASURED)

    @pytest.mark.parametrize(("nodes", "is_said"), [(1, False), (2, True), (0, False)])
    def test_times_of_as_many_ranks_that_lay_elsewhere(self, nodes: int, is_said: bool) -> None:
        """Four ranks of one node; also in a file without a calibration."""
        curve = Curve(members=4, nodes=nodes, sizes_bytes=(1000,), times_ns=(50,))
        tier = replace(SECOND_A_GB, measured={"all_reduce": (curve,)})
        for cluster in (replace(MEASURED, tiers=(tier,)), ClusterModel(tiers=(tier,), is_measured=True)):
            doubts = self.doubts(job("dp=4", reducing()), cluster)
            assert (
                "100% of the communication time, which is in groups or of sizes that were not measured" in doubts
            ) == is_said

    def test_only_the_groups_count_that_were_not_measured(self) -> None:
        """Of three ranks each, a quarter of the groups lies in two nodes of eight. Only these take 100 ns."""
        near = Curve(members=3, nodes=1, sizes_bytes=(1000,), times_ns=(300,))
        far = Curve(members=3, nodes=3, sizes_bytes=(1000,), times_ns=(100,))
        tiers = (
            Tier(name="nvlink", spans=8, latency_ns=0, rate=10**12, measured={"all_reduce": (near,)}),
            Tier(name="fabric", spans=0, latency_ns=0, rate=10**9, measured={"all_reduce": (far,)}),
        )
        graph = job("dp=64,tp=3", reducing_along("tp"))
        said = "10% of the communication time, which is in groups or of sizes that were not measured"
        assert said in self.doubts(graph, ClusterModel(tiers=tiers, is_measured=True))

    @pytest.mark.parametrize(("nodes", "is_said"), [(None, True), (0, True), (1, False), (2, False)])
    def test_how_many_links_a_node_has(self, nodes: int | None, is_said: bool) -> None:
        """A group with two ranks in each of two nodes is taken to have two links."""
        assert MEASURED.calibration is not None
        known = None if nodes is None else replace(MEASURED.calibration, nodes=nodes)
        tiers = Tier(name="in", spans=2, latency_ns=0, rate=10**9), SECOND_A_GB
        cluster = replace(MEASURED, tiers=tiers, ranks_per_node=2, calibration=known)
        said = "rates between nodes, 100% of the communication time: the number of links of a node is unknown"
        assert (said in self.doubts(job("dp=4", reducing()), cluster)) == is_said
        limited = replace(cluster, tiers=(tiers[0], replace(SECOND_A_GB, node_rate=10**9)))
        measured = Curve(members=4, nodes=2, sizes_bytes=(1000,), times_ns=(50,))
        with_times = replace(cluster, tiers=(tiers[0], replace(SECOND_A_GB, measured={"all_reduce": (measured,)})))
        for other, mesh in ((limited, "dp=4"), (with_times, "dp=4"), (cluster, "dp=2"), (ideal(), "dp=16")):
            assert "links of a node" not in self.doubts(job(mesh, reducing()), other)
        assert "links of a node" not in self.doubts(job("dp=2,tp=2", reducing()), cluster), "one of each node"

    def test_links_between_nodes_that_a_calibration_of_one_node_did_not_measure(self) -> None:
        sample = Sample(
            op="all_reduce",
            where=Geometry(members=2, tier=0, nodes=1, local=2, sharing=0),
            size_bytes=1000,
            times_ns=(1000,),
        )
        origin = Calibration(machine="a machine", backend="nccl", date="2026-01-01", fits={})
        one_node = calibrate_model([sample], [("node", 0)], 2, origin=origin).cluster
        both = reducing()
        both.collective("all_reduce", "tp", 1000)
        said = "links between nodes, 50% of the communication time: the calibration measured 1 node"
        assert said in self.doubts(job("dp=2,tp=2", both), one_node)
        assert "links between" not in self.doubts(job("tp=2", reducing_along("tp")), one_node)
        older = cluster_file.parse(cluster_text.write(one_node).replace("  nodes: 1\n", ""))
        assert said in self.doubts(job("dp=2,tp=2", both), older), "a file with one tier is of one node"

    def test_links_among_more_nodes_than_were_measured(self) -> None:
        assert MEASURED.calibration is not None
        two = replace(MEASURED, ranks_per_node=1, calibration=replace(MEASURED.calibration, nodes=2))
        said = "links between more than 2 nodes, 100% of the communication time: the calibration measured 2 nodes"
        assert said in self.doubts(job("dp=4", reducing()), two)
        assert "links between" not in self.doubts(job("dp=2,tp=2", reducing()), two)
        assert "links between" not in self.doubts(job("dp=4", reducing()), replace(MEASURED, ranks_per_node=1)), (
            "an older file with several tiers does not say how many"
        )

    def test_messages_of_a_pipeline_that_only_some_ranks_send_to_another_node(self) -> None:
        assert MEASURED.calibration is not None
        one = replace(MEASURED, ranks_per_node=2, calibration=replace(MEASURED.calibration, nodes=1))
        graph = gpt_job(Mesh.parse("pp=4"), GptShape(layers=4, hidden=64, microbatches=2, vocabulary=10))
        assert "links between nodes, 33% of the communication time" in self.doubts(graph, one)

    def test_overlap_that_nobody_measured(self) -> None:
        writer = EntryWriter()
        call = writer.collective("all_reduce", "dp", 1000, blocking=False)
        writer.compute(10)
        writer.wait(call)
        said = "at the same time: the cluster file has no values for it"
        assert said in self.doubts(job("dp=2", writer), MEASURED)
        assert said not in self.doubts(job("dp=2", writer), replace(MEASURED, compute_overlap_ppm=1_200_000))
        assert said not in self.doubts(job("dp=2", reducing()), MEASURED)


class TestKnownErrors:
    TRUTHS = (
        Truth(rank=0, iteration_ns=4000, computed_ns=3000, blocked_ns=1000, waited_ns=0, peak_bytes=100),
        Truth(rank=1, iteration_ns=5000, computed_ns=3000, blocked_ns=2000, waited_ns=1000, peak_bytes=200),
    )

    def graph(self, *truths: Truth) -> JobGraph:
        writer = reducing(provenance=Provenance.RECORDED)
        writer.memory(150)
        return replace(job("dp=2", writer), origin=Origin(source=Source.RECORDED, truths=truths))

    def test_by_component_signed_and_of_the_rank_that_is_worst(self) -> None:
        fidelity = simulate(self.graph(*self.TRUTHS), ClusterModel(tiers=(SECOND_A_GB,))).fidelity
        found = {error.component: error for error in fidelity.errors}

        assert found["iteration"].mean == pytest.approx((0 - 1000 / 5000) / 2)
        assert (found["iteration"].worst, found["iteration"].worst_rank) == (pytest.approx(-0.2), 1)
        assert (found["computation"].mean, found["exposed communication"].mean) == (0, 0)
        assert found["waiting"].worst == pytest.approx(-0.2)
        assert found["memory"].mean == pytest.approx((0.5 - 0.25) / 2)
        assert "against the recorded run, 2 ranks: iteration -10.00%, at worst -20.00% (rank 1)" in fidelity.lines()

    def test_waiting_and_transfer_are_one_where_nobody_knows_who_was_last(self) -> None:
        known = replace(self.TRUTHS[1], waited_ns=-1, peak_bytes=-1)
        errors = simulate(self.graph(known), ClusterModel(tiers=(SECOND_A_GB,))).fidelity.errors

        assert {error.component for error in errors} == {
            "iteration", "computation", "exposed communication and waiting",
        }  # fmt: skip
        assert [error.ranks for error in errors] == [1] * 3

    def test_a_changed_job_has_no_truth(self) -> None:
        graph = self.graph(*self.TRUTHS)
        changed = simulate(graph, ideal(), Changes(delays=(Delay(rank=0, delay_ns=5),))).fidelity

        assert not changed.errors and any("nothing ran" in doubt for doubt in changed.doubts)
        for other in (graph.stretched("dp", 4), graph.reordered(["dp"])):
            assert not simulate(other, ideal()).fidelity.errors

    def test_all_of_it_is_kept_in_the_file(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        path = tmp_path_factory.mktemp("graph") / "graph.npz"
        graph = replace(
            self.graph(*self.TRUTHS),
            origin=Origin(
                source=Source.RECORDED,
                standing_at=np.array([0, 2], dtype=np.uint8),
                stretched=("dp 1 to 2",),
                truths=self.TRUTHS,
                is_contended=True,
            ),
        )
        graph_file.save(graph, path)
        origin = graph_file.load(path).origin

        assert (origin.source, origin.stretched, origin.truths) == (Source.RECORDED, ("dp 1 to 2",), self.TRUTHS)
        assert origin.standing_at is not None and origin.standing_at.tolist() == [0, 2]
        assert origin.is_contended


def test_a_share_is_never_rounded_to_nothing_or_all() -> None:
    writer = EntryWriter()
    writer.compute(10**9, provenance=Provenance.REAL)
    writer.compute(1, provenance=Provenance.ASSUMED)
    assert "over 99.9% real, under 0.1% assumed" in simulate(job("dp=2", writer), ideal()).fidelity.summary()


def test_arithmetic_is_assumed_to_the_last_byte() -> None:
    graph = gpt_job(Mesh.parse("pp=2,dp=2"), GptShape(layers=2, hidden=64, microbatches=2, vocabulary=10))
    fidelity = simulate(graph, MEASURED).fidelity
    assert fidelity.bytes_share(Provenance.ASSUMED) == 1.0
    assert fidelity.time_share(Provenance.ASSUMED, "computation") == 1.0
    assert fidelity.time_share(Provenance.MODELLED, "communication") == 1.0
