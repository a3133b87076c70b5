"""Ranks that share the processors of a node, groups that share its links: factors in the file and the simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prismdbg.errors import UsageError
from prismdbg.simulate.cluster import cluster_file, cluster_text
from prismdbg.simulate.cluster.cluster import Calibration, ClusterModel, Factor, FactorFit, Tier
from prismdbg.simulate.cluster.slowdown import LARGEST_PPM, Slowdown
from prismdbg.simulate.engine.changes import Changes
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.graph.origin import Origin, Source

# A byte takes a nanosecond; all-reduce by a ring of two moves as many bytes as the message has.
PLAIN = ClusterModel(tiers=(Tier(name="only", spans=0, latency_ns=0, rate=10**9),), ranks_per_node=4)
BUSY = replace(PLAIN, processors=Slowdown(((4, 2_000_000),)), shared_links=Slowdown(((2, 1_500_000),)))


def job(mesh: str, writer: EntryWriter, source: Source = Source.EMULATED) -> JobGraph:
    whole = Mesh.parse(mesh)
    graph = JobGraph.build(whole, [(RankClass(name="all", entries=writer.done()), range(whole.world))])
    return replace(graph, origin=Origin(source=source))


def computing() -> EntryWriter:
    writer = EntryWriter()
    writer.compute(1000)
    return writer


def reducing(channel: str) -> EntryWriter:
    writer = EntryWriter()
    writer.collective("all_reduce", channel, 1000)
    return writer


class TestFactors:
    TWO = Slowdown(((2, 1_000_000), (4, 2_000_000)))

    @pytest.mark.parametrize(
        ("count", "ppm"), [(0, 10**6), (1, 10**6), (2, 10**6), (3, 1_500_000), (4, 2_000_000), (8, 4_000_000)]
    )
    def test_on_the_straight_line_and_beyond_on_the_last(self, count: int, ppm: int) -> None:
        assert self.TWO.ppm(count) == ppm

    def test_one_alone_is_not_slower(self) -> None:
        assert [Slowdown(((3, 3_000_000),)).ppm(n) for n in (1, 2, 3)] == [10**6, 2_000_000, 3_000_000]
        assert Slowdown().ppm(100) == 10**6

    def test_beyond_the_last_it_never_falls_and_has_an_end(self) -> None:
        falling = Slowdown(((2, 1_200_000), (4, 1_100_000)))
        assert [falling.ppm(n) for n in (3, 4, 100)] == [1_150_000, 1_100_000, 1_100_000]
        assert self.TWO.ppm(10**9) == LARGEST_PPM


class TestProcessors:
    def test_all_ranks_of_a_node_compute_at_once(self) -> None:
        assert simulate(job("dp=4", computing()), PLAIN).computed_ns.tolist() == [1000] * 4
        assert simulate(job("dp=4", computing()), BUSY).computed_ns.tolist() == [2000] * 4

    def test_a_node_with_fewer_ranks_is_less_busy(self) -> None:
        """Four on the first node; two on the second, on the line between one and four."""
        assert simulate(job("dp=6", computing()), BUSY).computed_ns.tolist() == [2000] * 4 + [1333] * 2

    def test_beside_other_factors(self) -> None:
        changes = Changes(compute_ppm={2: 1_500_000})
        found = simulate(job("dp=4", computing()), replace(BUSY, compute_ppm={1: 3_000_000}), changes)
        assert found.computed_ns.tolist() == [2000, 6000, 3000, 2000]

    def test_recorded_ranks_did_compute_at_once(self) -> None:
        assert simulate(job("dp=4", computing(), Source.RECORDED), BUSY).computed_ns.tolist() == [1000] * 4

    def test_ranks_that_were_paced_by_it_are_not_slowed_again(self) -> None:
        graph = job("dp=4", computing())
        paced = replace(graph, origin=replace(graph.origin, is_contended=True))
        assert simulate(paced, BUSY).computed_ns.tolist() == [1000] * 4

    @pytest.mark.parametrize(
        ("origin", "computed_ns"),
        [
            (Origin(source=Source.EMULATED), 1500),
            (Origin(source=Source.EMULATED, is_contended=True), 1000),
            (Origin(source=Source.RECORDED), 1000),
        ],
    )
    def test_so_it_is_with_overlap(self, origin: Origin, computed_ns: int) -> None:
        """What was timed beside a transfer took longer then. The transfer is modelled, so its factor always counts."""
        writer = EntryWriter()
        call = writer.collective("all_reduce", "dp", 5000, blocking=False)
        writer.compute(1000)
        writer.wait(call)
        cluster = replace(PLAIN, compute_overlap_ppm=1_500_000, transfer_overlap_ppm=2_000_000)
        found = simulate(replace(job("dp=2", writer), origin=origin), cluster)
        assert (found.computed_ns.tolist(), found.iteration_ns) == ([computed_ns] * 2, 5000 + computed_ns // 2)

    @pytest.mark.parametrize(
        ("source", "cluster", "is_said"),
        [(Source.EMULATED, BUSY, True), (Source.RECORDED, BUSY, False), (Source.EMULATED, PLAIN, False)],
    )
    def test_what_is_assumed_is_said(self, source: Source, cluster: ClusterModel, is_said: bool) -> None:
        doubts = "\n".join(simulate(job("dp=4", computing(), source), cluster).fidelity.doubts)
        assert (
            "all ranks of a node are assumed to compute at the same time, each 2 times as long as alone" in doubts
        ) == (is_said)


class TestLinks:
    def test_groups_inside_a_node_slow_each_other_down(self) -> None:
        graph = job("dp=2,tp=2", reducing("tp"))
        assert simulate(graph, PLAIN).iteration_ns == 1000
        assert simulate(graph, BUSY).iteration_ns == 1500

    def test_one_group_alone_does_not(self) -> None:
        assert simulate(job("tp=2", reducing("tp")), BUSY).iteration_ns == 1000
        both = simulate(job("dp=3,tp=2", reducing("tp")), BUSY)
        assert both.ended_ns.tolist() == [1500] * 4 + [1000] * 2, "the second node has one group"

    def test_groups_that_leave_their_node_share_only_its_bandwidth(self) -> None:
        graph = job("dp=2,tp=4", reducing("dp"))
        assert simulate(graph, BUSY).iteration_ns == simulate(graph, PLAIN).iteration_ns == 1000

    def test_messages_are_not_slowed(self) -> None:
        writer = EntryWriter()
        writer.send("pp+1", 100, blocking=False)
        writer.recv("pp-1", 100)
        graph = job("pp=4", writer)
        assert simulate(graph, BUSY).iteration_ns == simulate(graph, PLAIN).iteration_ns


FILE = """\
ranks_per_node: 4
tiers:
  only: {spans: job, latency: 0 ns, bandwidth: 1 GB/s}
contention: {processors: {4: 2}, links: {2: 1.5}}
calibration:
  machine: here
  backend: gloo
  date: 2026-01-01
  factors:
    processors: {median: 1 %, largest: 2.5 %, cases: 2}
"""


class TestTheFile:
    def test_is_read(self) -> None:
        cluster = cluster_file.parse(FILE)
        assert (cluster.processors, cluster.shared_links) == (BUSY.processors, BUSY.shared_links)
        assert cluster.calibration == Calibration(
            machine="here",
            backend="gloo",
            date="2026-01-01",
            fits={},
            factors={Factor.PROCESSORS: FactorFit(median_ppm=10_000, largest_ppm=25_000, cases=2)},
            nodes=1,  # one tier
        )
        assert cluster_file.parse(cluster_text.write(cluster)) == cluster

    def test_files_without_it_mean_what_they_meant(self) -> None:
        before = "".join(line for line in FILE.splitlines(keepends=True) if "contention" not in line)
        cluster = cluster_file.parse(before)
        assert cluster.processors == cluster.shared_links == Slowdown()
        assert "contention" not in cluster_text.write(cluster)

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("{4: 2}", "{1: 2}", "line 4: contention.processors.1: '1' is not a number from 2"),
            ("{4: 2}", "{4: 0.9}", "line 4: contention.processors.4: is below 1: contention makes nothing faster"),
            ("{4: 2}", "{4: 2, 3: 1.5}", "line 4: contention.processors: must be factors by number, from the smallest"),
            ("links", "wires", "line 4: contention.wires: is not a key of this mapping"),
            ("    processors", "    doors", "line 10: calibration.factors.doors: is not a key of this mapping"),
            ("cases: 2", "cases: 0", "line 10: calibration.factors.processors.cases: '0' is not a whole number from 1"),
        ],
    )
    def test_what_is_wrong_is_said(self, old: str, new: str, said: str) -> None:
        with pytest.raises(UsageError, match=said):
            cluster_file.parse(FILE.replace(old, new, 1), "c.yaml")


def test_measured_overlap_of_one_is_a_value_too() -> None:
    writer = EntryWriter()
    call = writer.collective("all_reduce", "dp", 1000, blocking=False)
    writer.compute(10)
    writer.wait(call)
    calibration = Calibration(machine="here", backend="gloo", date="", fits={})
    measured = replace(calibration, factors={Factor.COMPUTE_OVERLAP: FactorFit(median_ppm=0, largest_ppm=0, cases=1)})
    said = "at the same time: the cluster file has no values for it"
    for known, is_said in ((calibration, True), (measured, False)):
        doubts = simulate(job("dp=2", writer), replace(PLAIN, calibration=known)).fidelity.doubts
        assert any(said in doubt for doubt in doubts) == is_said
