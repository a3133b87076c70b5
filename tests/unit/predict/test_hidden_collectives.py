"""What a collective takes of the computation that hides it, in the bench of published iterations."""

from __future__ import annotations

import numpy as np
import pytest

from prismdbg.simulate.cluster.cluster import ClusterModel, Tier
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh
from tests.bench.predicted_jobs import CHANNELS, SMS, with_overlap

LINKS = ClusterModel(tiers=(Tier(name="link", spans=0, latency_ns=0, rate=10**9),))  # a byte a nanosecond
SIZE = 200_000  # of two ranks an all_gather takes half of it


def placed(writer: EntryWriter, ranks: int) -> JobGraph:
    classes = (RankClass(name="all", entries=writer.done()),)
    return JobGraph.placed(
        Mesh.parse(f"tp={ranks}"), classes, np.zeros(ranks, dtype=np.int64), np.full(ranks, 10**6, dtype=np.int64)
    )


def job(computed_ns: int) -> JobGraph:
    writer = EntryWriter()
    hidden = writer.collective("all_gather", "tp", SIZE, blocking=False, label="", line="")
    writer.compute(computed_ns, "", line="")
    writer.wait(hidden, line="")
    return placed(writer, 2)


@pytest.mark.parametrize(("computed_ns", "beside_ns"), [(1_000_000, 100_000), (35_000, 45_000)])
def test_a_computation_has_fewer_processors_while_a_collective_is_under_way(computed_ns: int, beside_ns: int) -> None:
    """Of the longer computation, as long as the collective takes; of the shorter one, all of it."""
    graph = job(computed_ns)
    cluster = with_overlap(LINKS, graph, 2)
    longer_ns = CHANNELS / SMS * beside_ns
    assert cluster.compute_overlap_ppm == pytest.approx(10**6 * (1 + longer_ns / computed_ns), rel=1e-4)
    taken_ns = max(computed_ns + longer_ns, SIZE / 2)
    assert simulate(graph, cluster).iteration_ns == pytest.approx(taken_ns, rel=1e-3)


def test_without_hidden_collectives_nothing_changes() -> None:
    writer = EntryWriter()
    writer.compute(1_000, "", line="")
    assert with_overlap(LINKS, placed(writer, 1), 1) is LINKS


def test_with_no_channels_a_computation_takes_what_it_takes_alone() -> None:
    graph = job(1_000_000)
    assert simulate(graph, with_overlap(LINKS, graph, 2, channels=0)).iteration_ns == 1_000_000
