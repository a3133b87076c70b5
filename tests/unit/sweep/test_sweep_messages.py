"""The sizes of messages and the share of their links' rate, against figures worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prismdbg.simulate.cluster.cluster import Algorithm, Choice, ClusterModel, Tier
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.sweep.messages import link_shares, message_bytes

US = 1000


def cluster(algorithm: Algorithm = Algorithm.RING, *, node_rate: int = 0) -> ClusterModel:
    """Nodes of four: 10 us and 8 GB/s inside, 20 us and 2 GB/s between."""
    near = Tier(name="near", spans=4, latency_ns=10 * US, rate=8 * 10**9)
    far = Tier(name="far", spans=0, latency_ns=20 * US, rate=2 * 10**9, node_rate=node_rate)
    return ClusterModel(tiers=(near, far), ranks_per_node=4, algorithms={"all_reduce": (Choice(algorithm),)})


def shares(mesh: str, of: ClusterModel, *parts: tuple[Callable[[EntryWriter], object], range]) -> dict[str, float]:
    classes = []
    for number, (does, ranks) in enumerate(parts):
        writer = EntryWriter()
        writer.compute(1000)
        does(writer)
        classes.append((RankClass(name=str(number), entries=writer.done()), ranks))
    return link_shares(simulate(JobGraph.build(Mesh.parse(mesh), classes), of), of)


@pytest.mark.parametrize(
    ("op", "dp", "size_bytes", "on_link_bytes", "latencies"),
    [
        ("all_gather", 2, 3_200_000, 1_600_000, 1),  # half of it is the rank's own
        ("reduce_scatter", 4, 3_200_000, 2_400_000, 3),
        ("all_reduce", 2, 3_200_000, 3_200_000, 2),
        ("all_reduce", 4, 3_200_000, 4_800_000, 6),  # 2 x 3/4
        ("broadcast", 4, 3_200_000, 3_200_000, 3),
    ],
)
def test_of_a_ring_that_is_what_each_link_carries(
    op: str, dp: int, size_bytes: int, on_link_bytes: int, latencies: int
) -> None:
    ideal_us = on_link_bytes / 8000  # 8 GB/s
    found = shares(f"dp={dp}", cluster(), (lambda writer: writer.collective(op, "dp", size_bytes), range(dp)))
    assert found == {"dp": pytest.approx(ideal_us / (ideal_us + 10 * latencies))}


def test_of_a_tree_each_way_counts() -> None:
    """Two levels there and back, 400 us of bytes each way."""
    tree = cluster(Algorithm.TREE)
    found = shares("dp=4", tree, (lambda writer: writer.collective("all_reduce", "dp", 3_200_000), range(4)))
    assert found == {"dp": pytest.approx(800 / (800 + 2 * 2 * 10))}


def test_between_nodes_a_hierarchy_counts_with_the_links_that_it_uses() -> None:
    """8 ranks in two nodes: 2 x 3/4 of it inside at 8 GB/s, then a quarter of it between at 2 GB/s."""
    both = cluster(Algorithm.HIERARCHICAL)
    found = shares("dp=8", both, (lambda writer: writer.collective("all_reduce", "dp", 3_200_000), range(8)))
    ideal_us = 2 * 2_400_000 / 8000 + 800_000 / 2000
    assert found == {"dp": pytest.approx(ideal_us / (ideal_us + 6 * 10 + 2 * 20))}


def test_where_a_node_shares_its_links_the_share_of_a_rank_is_less() -> None:
    """Four rings leave each node, with 2 GB/s for all of them together, and 2 GB/s for each by itself."""
    shared = cluster(node_rate=2 * 10**9)
    found = shares("dp=2,tp=4", shared, (lambda writer: writer.collective("all_gather", "dp", 8_000_000), range(8)))
    assert found == {"dp": pytest.approx(2000 / (4 * 2000 + 20))}


def test_a_group_in_several_nodes_has_the_links_of_all_its_ranks_and_no_more_than_a_node_has() -> None:
    """Four links of 2 GB/s, but 4 GB/s of a node: 7/8 of 8 MB take 1750 us."""
    found = shares(
        "dp=8", cluster(node_rate=4 * 10**9), (lambda w: w.collective("all_gather", "dp", 8_000_000), range(8))
    )
    assert found == {"dp": pytest.approx(1750 / (1750 + 7 * 20))}


def test_messages_to_a_neighbour_and_several_axes() -> None:
    """Two stages in one node: 80 kB take 10 us and 10 us of latency. Beside them an all-gather of tp."""

    def first(writer: EntryWriter) -> None:
        writer.send("pp+1", 80_000, blocking=True)
        writer.collective("all_gather", "tp", 160_000)

    def last(writer: EntryWriter) -> None:
        writer.recv("pp-1", 80_000)
        writer.collective("all_gather", "tp", 160_000)

    found = shares("pp=2,tp=2", cluster(), (first, range(2)), (last, range(2, 4)))
    assert found == {"pp": pytest.approx(0.5), "tp": pytest.approx(0.5)}


def test_links_without_a_rate_have_no_share() -> None:
    endless = ClusterModel(tiers=(Tier(name="only", spans=0, latency_ns=5, rate=0),))
    assert shares("dp=2", endless, (lambda writer: writer.collective("all_gather", "dp", 8), range(2))) == {}


def test_the_size_of_a_message_is_the_mean_of_all() -> None:
    writer = EntryWriter()
    for size_bytes in (100, 300):
        writer.collective("all_gather", "dp", size_bytes)
    graph = JobGraph.build(Mesh.parse("dp=2"), [(RankClass(name="all", entries=writer.done()), range(2))])
    assert message_bytes(simulate(graph, cluster())) == {"dp": 200.0}
