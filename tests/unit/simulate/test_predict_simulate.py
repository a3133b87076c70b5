"""Simulated jobs with known answers: pipelines, stragglers, overlap, what-if, and what results say of themselves."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from prismdbg.errors import UsageError
from prismdbg.simulate.cluster.cluster import ClusterModel, Tier, example, ideal
from prismdbg.simulate.engine.changes import Changes, Delay
from prismdbg.simulate.engine.critical_path import critical_path
from prismdbg.simulate.engine.engine import Keep
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.entries import Entries, Provenance
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass, vector_by_rank
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.quantities import MILLION

SECOND_A_GB = ClusterModel(tiers=(Tier(name="only", spans=0, latency_ns=0, rate=10**9),))


def job(mesh: str, *classes: tuple[EntryWriter, Iterable[int]], compute_ppm: list[int] | None = None) -> JobGraph:
    named = [(RankClass(name=f"c{i}", entries=writer.done()), ranks) for i, (writer, ranks) in enumerate(classes)]
    return JobGraph.build(Mesh.parse(mesh), named, compute_ppm=compute_ppm)


def one_f_one_b(stage: int, stages: int, count: int, forward_ns: int, backward_ns: int) -> Entries:
    """The textbook's schedule, nothing else."""
    writer = EntryWriter()

    def forward(number: int) -> None:
        if stage:
            writer.recv("pp-1", 8)
        writer.compute(forward_ns, f"F{number}")
        if stage < stages - 1:
            writer.send("pp+1", 8)

    def backward(number: int) -> None:
        if stage < stages - 1:
            writer.recv("pp+1", 8)
        writer.compute(backward_ns, f"B{number}")
        if stage:
            writer.send("pp-1", 8)

    ahead = min(stages - 1 - stage, count)
    for number in range(ahead):
        forward(number)
    for number in range(count - ahead):
        forward(ahead + number)
        backward(number)
    for number in range(count - ahead, count):
        backward(number)
    return writer.done()


class TestPipelines:
    @pytest.mark.parametrize(("stages", "count"), [(1, 3), (2, 2), (4, 4), (4, 16), (8, 11), (16, 96)])
    def test_the_bubble_is_as_the_formula_says(self, stages: int, count: int) -> None:
        """(p-1)/(m+p-1) of all ranks' time."""
        forward_ns, backward_ns = 1000, 2000
        graph = JobGraph.build(
            Mesh.parse(f"pp={stages}"),
            [
                (RankClass(name=str(s), entries=one_f_one_b(s, stages, count, forward_ns, backward_ns)), [s])
                for s in range(stages)
            ],
        )
        timeline = simulate(graph, ideal())

        assert timeline.iteration_ns == (count + stages - 1) * (forward_ns + backward_ns)
        assert timeline.bubble_share == pytest.approx((stages - 1) / (count + stages - 1), rel=1e-12)

    def test_a_class_of_stages_is_taken_apart_where_it_must(self) -> None:
        """All forward: stages between do the same, but wait for each other."""
        first, between, last = EntryWriter(), EntryWriter(), EntryWriter()
        for number in range(3):
            first.compute(100)
            first.send("pp+1", 1)
            between.recv("pp-1", 1)
            between.compute(100)
            between.send("pp+1", 1)
            last.recv("pp-1", 1)
            last.compute(100, str(number))
        graph = job("pp=6,tp=2", (first, [0, 1]), (between, range(2, 10)), (last, [10, 11]))

        assert len(graph.classes) == 3
        assert len(graph.stitching.cohorts.members) == 6
        assert simulate(graph, ideal()).iteration_ns == (3 + 5) * 100

    def test_a_channel_by_two_names_is_one_channel(self) -> None:
        """On an axis of two the next and the one before are the same rank; messages match in the order of sending."""
        sender, receiver = EntryWriter(), EntryWriter()
        for channel, size_bytes in (("pp+1", 100), ("pp-1", 2000), ("pp+1", 30)):
            sender.send(channel, size_bytes, stream="out")
        for size_bytes in (100, 2000, 30):
            receiver.recv("pp-1", size_bytes)
        timeline = simulate(job("pp=2", (sender, [0]), (receiver, [1])), SECOND_A_GB)

        assert timeline.ended_ns.tolist() == [2130, 2130]


class TestStragglers:
    @pytest.mark.parametrize("delay_ns", [1, 12_345_678])
    def test_a_delay_passes_through_exactly(self, delay_ns: int) -> None:
        graph = gpt_job(Mesh.parse("pp=4,dp=4,tp=2"), GptShape(layers=8, hidden=512, microbatches=4))
        before = simulate(graph, ideal(), trace=True)
        critical = critical_path(before)[0]

        after = simulate(graph, ideal(), Changes(delays=(Delay(rank=critical.rank, delay_ns=delay_ns),)))

        assert after.iteration_ns - before.iteration_ns == delay_ns

    @pytest.mark.parametrize("delay_ns", [700, 999, 5000])
    def test_a_rank_that_starts_later_is_there_later_not_behind_what_it_receives(self, delay_ns: int) -> None:
        sender, receiver = EntryWriter(), EntryWriter()
        sender.compute(1000)
        sender.send("pp+1", 8)
        receiver.recv("pp-1", 8)
        receiver.compute(500)
        graph = job("pp=2", (sender, [0]), (receiver, [1]))
        before = simulate(graph, SECOND_A_GB)
        after = simulate(graph, SECOND_A_GB, Changes(delays=(Delay(rank=1, delay_ns=delay_ns),)), trace=True)

        assert after.iteration_ns - before.iteration_ns == max(delay_ns - 1000, 0)
        assert after.computed_ns.tolist() == [1000, 500 + delay_ns]
        assert critical_path(after)[0].rank == int(delay_ns > 1000)

    def test_a_rank_without_a_computation_can_start_later(self) -> None:
        writer = EntryWriter()
        writer.collective("all_reduce", "dp", 1000)
        after = simulate(job("dp=2", (writer, [0, 1])), SECOND_A_GB, Changes(delays=(Delay(rank=1, delay_ns=300),)))

        assert after.ended_ns.tolist() == [1300, 1300]
        assert after.late_ns["dp"].tolist() == [300, 0]

    def test_who_waits_for_it(self) -> None:
        writer = EntryWriter()
        writer.compute(1000)
        writer.collective("all_reduce", "tp", 1000)
        timeline = simulate(job("dp=2,tp=4", (writer, range(8))), SECOND_A_GB, Changes(compute_ppm={5: 1_500_000}))

        assert timeline.late_ns["tp"].tolist() == [0, 0, 0, 0, 500, 0, 500, 500]
        assert timeline.tail_ns.tolist() == [500] * 4 + [0] * 4
        assert timeline.shown_ns["tp"].tolist() == [1500] * 8
        assert timeline.iteration_ns == 1500 + 2 * 3 * 1000 // 4

    def test_each_ranks_time_is_accounted_for(self) -> None:
        graph = gpt_job(
            Mesh.parse("pp=4,dp=4,tp=2"),
            GptShape(layers=8, hidden=512, microbatches=6),
            compute_ppm=np.random.default_rng(1).integers(10**6, 2 * 10**6, 32),
        )
        timeline = simulate(graph, example())

        parts = [timeline.computed_ns, timeline.exposed_ns, *timeline.late_ns.values(), timeline.tail_ns]
        assert (sum(parts) == timeline.iteration_ns).all()
        assert (timeline.tail_ns >= 0).all()
        assert min(int(v.min()) for v in timeline.late_ns.values()) == 0
        assert timeline.bubble_share > 0


class TestStreams:
    def overlapped(self, compute_ns: int) -> JobGraph:
        writer = EntryWriter()
        reduced = writer.collective("all_reduce", "dp", 1000, blocking=False)
        writer.compute(compute_ns)
        writer.wait(reduced)
        return job("dp=2", (writer, [0, 1]))

    @pytest.mark.parametrize(("compute_ns", "shown_ns"), [(0, 1000), (400, 600), (1000, 0), (5000, 0)])
    def test_what_computation_hides_is_not_shown(self, compute_ns: int, shown_ns: int) -> None:
        timeline = simulate(self.overlapped(compute_ns), SECOND_A_GB)

        assert timeline.iteration_ns == max(compute_ns, 1000)
        assert timeline.shown_ns.get("dp", np.zeros(2)).tolist() == [shown_ns] * 2
        assert timeline.transfer_ns["dp"].tolist() == [1000, 1000]

    def test_overlap_costs_what_the_cluster_says(self) -> None:
        slower = ClusterModel(tiers=SECOND_A_GB.tiers, compute_overlap_ppm=1_500_000, transfer_overlap_ppm=2_000_000)
        timeline = simulate(self.overlapped(1000), slower)

        assert timeline.computed_ns.tolist() == [1500, 1500]
        assert timeline.iteration_ns == 1500 + 250, "half as fast for 1500 of its 1000, and then as fast as alone"

    @pytest.mark.parametrize(("compute_ns", "ends_ns"), [(0, 1000), (400, 1200), (2000, 2000), (5000, 5000)])
    def test_a_transfer_is_slower_only_beside_computation(self, compute_ns: int, ends_ns: int) -> None:
        slower = ClusterModel(tiers=SECOND_A_GB.tiers, transfer_overlap_ppm=2_000_000)
        assert simulate(self.overlapped(compute_ns), slower).iteration_ns == ends_ns

    def test_messages_are_not_slower_for_overlap(self) -> None:
        sender, receiver = EntryWriter(), EntryWriter()
        sent = sender.send("pp+1", 1000, blocking=False)
        sender.compute(3000)
        sender.wait(sent)
        receiver.recv("pp-1", 1000)
        slower = ClusterModel(tiers=SECOND_A_GB.tiers, transfer_overlap_ppm=2_000_000)
        ends = simulate(job("pp=2", (sender, [0]), (receiver, [1])), slower).ended_ns
        assert ends.tolist() == [3000, 1000], "collectives were measured, messages were not"

    def test_one_stream_takes_one_after_the_other(self) -> None:
        writer = EntryWriter()
        calls = [writer.collective("all_reduce", "dp", 1000, blocking=False) for _ in range(3)]
        for call in calls:
            writer.wait(call)
        timeline = simulate(job("dp=2", (writer, [0, 1])), SECOND_A_GB, keep=Keep.ALL)

        assert timeline.of(1).end_ns[:3].tolist() == [1000, 2000, 3000]

    def test_an_eager_send_waits_for_nobody(self) -> None:
        sender, receiver = EntryWriter(), EntryWriter()
        sender.send("pp+1", 100, blocking=True)
        sender.compute(10)
        receiver.compute(5000)
        receiver.recv("pp-1", 100)
        graph = job("pp=2", (sender, [0]), (receiver, [1]))
        eager = ClusterModel(tiers=SECOND_A_GB.tiers, eager_bytes=100)

        assert simulate(graph, eager).ended_ns.tolist() == [110, 5000]
        assert simulate(graph, SECOND_A_GB).ended_ns.tolist() == [5110, 5100]


class TestWhatIfByHand:
    """Two nodes of two; each rank computes 1000 ns, reduces 4000 bytes in its node, then 400 with the other node."""

    CLUSTER = ClusterModel(
        tiers=(
            Tier(name="near", spans=2, latency_ns=10, rate=4 * 10**9),
            Tier(name="far", spans=0, latency_ns=100, rate=10**9, node_rate=10**9),
        ),
        ranks_per_node=2,
    )
    NEAR = 2 * 10 + 4000 // 4  # a ring of two: 2(n-1) L + 2(n-1)/n S/B
    FAR = 2 * 100 + 2 * 400  # the two groups that leave a node share its links: half of the rate each

    def graph(self) -> JobGraph:
        writer = EntryWriter()
        writer.compute(700, "F0 attention")
        writer.compute(300, "F0 mlp")
        writer.collective("all_reduce", "tp", 4000)
        writer.collective("all_reduce", "dp", 400)
        return job("dp=2,tp=2", (writer, range(4)))

    def changed_by(self, changes: Changes, graph: JobGraph | None = None) -> int:
        before = simulate(self.graph(), self.CLUSTER)
        assert before.iteration_ns == 1000 + self.NEAR + self.FAR
        return simulate(graph or self.graph(), self.CLUSTER, changes).iteration_ns - before.iteration_ns

    def test_a_slow_rank(self) -> None:
        assert self.changed_by(Changes(compute_ppm={2: 1_250_000})) == 250
        assert self.changed_by(Changes(compute_ppm={2: 1_250_000, 3: 1_250_000})) == 250, "not once for each"

    def test_a_slow_link(self) -> None:
        """Rank 1 takes part in its node's group and in one across: both take twice as long."""
        assert self.changed_by(Changes(link_ppm={1: 2_000_000})) == self.NEAR + self.FAR

    def test_a_slow_tier(self) -> None:
        assert self.changed_by(Changes(tier_ppm={"far": 3_000_000})) == pytest.approx(2 * self.FAR, abs=2)
        assert self.changed_by(Changes(tier_ppm={"near": 500_000})) == -self.NEAR // 2

    def test_a_faster_kernel(self) -> None:
        assert self.changed_by(Changes(kernel_ppm={"* mlp": 500_000})) == -150
        assert self.changed_by(Changes(kernel_ppm={"F0 *": 500_000})) == -500

    def test_another_order_of_the_mesh(self) -> None:
        """Then the large messages go between the nodes and the small ones stay inside."""
        inside, between = 2 * 10 + 400 // 4, 2 * 100 + 2 * 4000
        turned = self.graph().reordered(["tp", "dp"])
        assert self.changed_by(Changes(), turned) == inside + between - self.NEAR - self.FAR

    def test_a_delay(self) -> None:
        assert self.changed_by(Changes(delays=(Delay(rank=3, delay_ns=777),))) == 777


class TestWhatIf:
    GRAPH = gpt_job(Mesh.parse("pp=2,dp=8,tp=4"), GptShape(layers=4, hidden=1024, microbatches=4, vocabulary=800))

    def test_a_slow_link_is_felt_by_its_groups_only(self) -> None:
        writer = EntryWriter()
        writer.collective("all_reduce", "tp", 1000)
        graph = job("dp=2,tp=2", (writer, range(4)))

        timeline = simulate(graph, SECOND_A_GB, Changes(link_ppm={3: 3_000_000}))

        assert timeline.ended_ns.tolist() == [1000, 1000, 3000, 3000]

    def test_a_faster_kernel(self) -> None:
        before = simulate(self.GRAPH, ideal())
        after = simulate(self.GRAPH, ideal(), Changes(kernel_ppm={"* mlp": 500_000}))

        assert 0.5 < after.iteration_ns / before.iteration_ns < 0.9

    def test_tensor_parallel_ranks_far_apart_cost_more(self) -> None:
        near = simulate(self.GRAPH, example())
        far = simulate(self.GRAPH.reordered(["tp", "dp", "pp"]), example())

        assert far.shown_ns["tp"].mean() > 3 * near.shown_ns["tp"].mean()
        assert far.computed_ns.sum() == near.computed_ns.sum()

    def test_a_slow_rank_stays_where_it_is_when_the_order_changes(self) -> None:
        slow = Changes(compute_ppm={5: 2_000_000})
        for graph in (self.GRAPH, self.GRAPH.reordered(["tp", "dp", "pp"])):
            computed = simulate(graph, ideal(), slow).computed_ns
            assert int(computed[5]) > 1.9 * int(np.median(computed))

    def test_what_a_recorded_rank_computes_longer_moves_with_what_it_does(self) -> None:
        """The rank at pp=1 dp=0 tp=1 is number 33, and in the other order number 17."""
        slower = np.full(64, MILLION, dtype=np.int64)
        slower[33] = 2 * MILLION
        classes = [(c, np.flatnonzero(vector_by_rank(self.GRAPH.mesh, self.GRAPH.class_at) == number).tolist())
                   for number, c in enumerate(self.GRAPH.classes)]  # fmt: skip
        graph = JobGraph.build(self.GRAPH.mesh, classes, compute_ppm=slower)
        turned = graph.reordered(["tp", "dp", "pp"])
        assert turned.mesh.coordinates(17) == graph.mesh.coordinates(33)
        before, after = (simulate(each, ideal()).computed_ns for each in (graph, turned))
        assert sorted(before.tolist()) == sorted(after.tolist())
        assert int(after[17]) == int(before[33]) > 1.9 * int(np.median(after))

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            (Changes(compute_ppm={64: 2}), "rank 64 is not in the mesh"),
            (Changes(link_ppm={-1: 2}), "rank -1 is not in the mesh"),
            (Changes(kernel_ppm={"gemm": 2}), "no computation has the name 'gemm'"),
            (Changes(tier_ppm={"ib": 2}), "no tier 'ib'"),
            (Changes(delays=(Delay(rank=0, entry=1, delay_ns=1),)), "entry 1 is not a computation"),
        ],
    )
    def test_what_is_not_there_cannot_change(self, changes: Changes, said: str) -> None:
        with pytest.raises(UsageError, match=said):
            simulate(self.GRAPH, ideal(), changes)


class TestWhatTheResultSaysOfItself:
    def test_shares_by_provenance(self) -> None:
        writer = EntryWriter()
        writer.compute(3000, provenance=Provenance.REAL)
        writer.compute(1000, provenance=Provenance.RECORDED)
        writer.collective("all_reduce", "dp", 1000)
        fidelity = simulate(job("dp=2", (writer, [0, 1])), SECOND_A_GB).fidelity

        assert fidelity.time_share(Provenance.REAL, "computation") == 0.75
        assert fidelity.time_share(Provenance.RECORDED) == 0.2
        assert fidelity.time_share(Provenance.ASSUMED, "communication") == 1.0
        assert any("parameters were assumed" in doubt for doubt in fidelity.doubts)

    def test_a_measured_cluster_models(self) -> None:
        writer = EntryWriter()
        writer.collective("all_reduce", "dp", 1000)
        measured = ClusterModel(tiers=SECOND_A_GB.tiers, is_measured=True)
        fidelity = simulate(job("dp=2", (writer, [0, 1])), measured).fidelity

        assert fidelity.bytes_share(Provenance.MODELLED, "communication") == 1.0
        assert not any("assumed" in doubt for doubt in fidelity.doubts)

    def test_a_timeline_that_was_not_kept(self) -> None:
        writer = EntryWriter()
        writer.collective("barrier", "dp", 0)
        graph = job("dp=2", (writer, [0, 1]))

        assert simulate(graph, ideal(), keep=Keep.FIRST).of(0).rank == 0
        with pytest.raises(UsageError, match=r"rank 1 \(dp=1\) was not kept"):
            simulate(graph, ideal(), keep=Keep.FIRST).of(1)
        with pytest.raises(UsageError, match="has no critical path"):
            critical_path(simulate(graph, ideal()))


def test_a_job_of_many_ranks_is_as_large_as_its_classes() -> None:
    """Nothing that is stored grows with the world but two vectors."""
    shape = GptShape(layers=16, hidden=4096, microbatches=8)
    small, large = (gpt_job(Mesh.parse(f"pp=16,dp={dp},tp=8"), shape) for dp in (2, 64))

    assert large.mesh.world == 8192
    assert large.stored_bytes - small.stored_bytes == (8192 - 256) * 16
    assert large.events == 32 * small.events
