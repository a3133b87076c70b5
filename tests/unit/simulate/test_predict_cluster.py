"""Cluster files, and how long a transfer takes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.errors import UsageError
from prismdbg.simulate.cluster import cluster_file
from prismdbg.simulate.cluster.cluster import Algorithm, Choice, ClusterModel, Tier, example
from prismdbg.simulate.cluster.curve import Curve
from prismdbg.simulate.cluster.transfer import Geometry, collective_ns, formula_ns, point_to_point_ns
from prismdbg.simulate.engine.topology import Topology
from prismdbg.simulate.graph.channel import parse
from prismdbg.simulate.graph.cohorts import Layout
from prismdbg.simulate.graph.mesh import Mesh

GOOD = """\
measured: true
ranks_per_node: 8
tiers:
  nvlink: {spans: node, latency: 2 us, bandwidth: 450 GB/s}
  rail: {spans: 256, latency: 4.5 us, bandwidth: 400 Gbit/s}
  spine: {spans: job, latency: 1 ms, bandwidth: 25 GiB/s, node_bandwidth: 200 GB/s}
algorithms:
  all_reduce: [{use: tree, up_to: 256 KiB}, {use: hierarchical}]
  default: [{use: ring}]
point_to_point: {eager: 64 kB}
overlap: {compute: 1.05, communication: 1.1}
slower: {compute: {617: 1.1, 64-65: 1.02}, links: {8: 2}}
"""


class TestTheFile:
    def test_everything_that_can_be_said(self) -> None:
        cluster = cluster_file.parse(GOOD)

        assert [tier.name for tier in cluster.tiers] == ["nvlink", "rail", "spine"]
        assert [tier.spans for tier in cluster.tiers] == [8, 256, 0]
        assert [tier.latency_ns for tier in cluster.tiers] == [2000, 4500, 1_000_000]
        assert [tier.rate for tier in cluster.tiers] == [450 * 10**9, 50 * 10**9, 25 << 30]
        assert cluster.tiers[2].node_rate == 200 * 10**9
        assert cluster.algorithm("all_reduce", 1 << 18) is Algorithm.TREE
        assert cluster.algorithm("all_reduce", (1 << 18) + 1) is Algorithm.HIERARCHICAL
        assert cluster.algorithm("broadcast", 5) is Algorithm.RING
        assert (cluster.eager_bytes, cluster.is_measured) == (64_000, True)
        assert (cluster.compute_overlap_ppm, cluster.transfer_overlap_ppm) == (1_050_000, 1_100_000)
        assert cluster.compute_ppm == {617: 1_100_000, 64: 1_020_000, 65: 1_020_000}
        assert cluster.link_ppm == {8: 2_000_000}

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("latency: 2 us", "latency: 2", r"c.yaml, line 4: tiers.nvlink.latency: '2' has no unit; .* 5 us"),
            ("450 GB/s", "450", r"line 4: tiers.nvlink.bandwidth: '450' has no unit; .* 25 GB/s"),
            ("450 GB/s", "450 GB", r"line 4: tiers.nvlink.bandwidth: .* has the unit 'GB'; one of"),
            ("450 GB/s", "0 GB/s", r"line 4: tiers.nvlink.bandwidth: is zero"),
            ("64 kB", "64", r"line 10: point_to_point.eager: '64' has no unit"),
            ("rail:", "nvlink:", r"line 5: tiers.nvlink: occurs twice"),
            ("latency: 2 us", "delay: 2 us", r"line 4: tiers.nvlink.delay: is not a key of this mapping"),
            ("256, lat", "4, lat", r"line 5: tiers.rail: spans no more than nvlink"),
            ("spans: job", "spans: 512", r"tiers: no tier spans the job"),
            ("{use: tree, up_to: 256 KiB}", "{use: magic, up_to: 1 B}", r"line 8: .*'magic' is not an algorithm"),
            ("{use: tree, up_to: 256 KiB}", "{use: tree}", r"the last choice, and only it, has no up_to"),
            ("all_reduce:", "all_magic:", r"line 8: algorithms.all_magic: is not a collective"),
            ("compute: 1.05", "compute: 5 %", r"line 11: overlap.compute: '5 %' is not a factor"),
            ("617: 1.1", "6x: 1.1", r"line 12: slower.compute.6x: '6x' is neither a rank nor ranks"),
            ("617: 1.1", "64: 1.1", r"rank 64 has two factors"),
            ("ranks_per_node: 8", "ranks_per_node: eight", r"line 2: ranks_per_node: 'eight' is not a whole number"),
            ("measured: true", "measured: maybe", r"line 1: measured: 'maybe' is neither"),
            ("tiers:", "links:", r"links: is not a key of this mapping"),
            ("ranks_per_node: 8\n", "", r"line 1: the file: ranks_per_node is missing"),
        ],
    )
    def test_what_is_wrong_is_said_with_file_line_and_key(self, old: str, new: str, said: str) -> None:
        assert old in GOOD
        with pytest.raises(UsageError, match=said) as caught:
            cluster_file.parse(GOOD.replace(old, new, 1), "c.yaml")
        assert str(caught.value).startswith("c.yaml, line")

    def test_ranks_with_a_factor_are_bounded_over_all_keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cluster_file, "_MOST_SLOWER", 8)
        few = GOOD.replace("617: 1.1", "0-5: 1.1")
        assert len(cluster_file.parse(few).compute_ppm) == 8
        with pytest.raises(UsageError, match=r"'70-70' is .* too many ranks"):
            cluster_file.parse(few.replace("64-65: 1.02", "64-65: 1.02, 70-70: 2"))

    MEASURED = (
        GOOD
        + """\
times:
  nvlink: {all_reduce: {2: {1 KiB: 80 us, 1 MiB: 1.2 ms}}, send: {2: {8 B: 40 us}}}
  rail: {all_reduce: {2x8: {1 MiB: 95 us}, 16x1: {1 MiB: 700 us}}}
calibration:
  machine: "one, here"
  backend: gloo
  date: 2026-01-01
  errors:
    all_reduce: {median: 1.5 %, largest: 20 %, ranks: [2, 8], sizes: [1 KiB, 1 MiB]}
"""
    )

    def test_what_was_measured(self) -> None:
        cluster = cluster_file.parse(self.MEASURED)

        assert cluster.tiers[0].measured["all_reduce"] == (
            Curve(members=2, sizes_bytes=(1024, 1 << 20), times_ns=(80_000, 1_200_000)),
        )
        assert [(curve.members, curve.nodes) for curve in cluster.tiers[1].measured["all_reduce"]] == [
            (16, 2),
            (16, 16),
        ]
        assert cluster.tiers[2].measured == {}
        assert cluster.calibration is not None
        fit = cluster.calibration.fits["all_reduce"]
        assert (fit.median_ppm, fit.largest_ppm, fit.groups, fit.sizes_bytes) == (
            15_000, 200_000, (2, 8), (1024, 1 << 20),
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ("  nvlink: {all_reduce", "  pcie: {all_reduce", r"line 14: times.pcie: is not a key of this mapping"),
            ("{all_reduce: {2:", "{all_magic: {2:", r"line 14: times.nvlink.all_magic: is not a collective"),
            (
                "{2: {1 KiB",
                "{1: {1 KiB",
                r"line 14: times.nvlink.all_reduce.1: '1' is neither a number of ranks from 2 nor a layout such as 2x8",
            ),
            ("{2: {1 KiB", "{two: {1 KiB", r"'two' is neither a number of ranks"),
            ("2x8:", "2x:", r"times.rail.all_reduce.2x: '2x' is neither a number of ranks"),
            ("2x8:", "1x1:", r"times.rail.all_reduce.1x1: '1x1' is neither a number of ranks"),
            ("2x8:", "0x8:", r"times.rail.all_reduce.0x8: '0x8' is neither a number of ranks"),
            ("1 KiB: 80 us", "1024: 80 us", r"line 14: times.nvlink.all_reduce.2.1024: '1024' has no unit"),
            ("1 KiB: 80 us", "1 KiB: 80", r"line 14: times.nvlink.all_reduce.2.1 KiB: '80' has no unit"),
            ("1 KiB: 80 us", "2 MiB: 80 us", r"must be times by size, from the smallest to the largest"),
            ("1 KiB: 80 us", "1 KiB: 0 us", r"contains a time of zero"),
            ("send: {2: {8 B: 40 us}}", "send: {}", r"times.nvlink.send: contains no times"),
            ("backend: gloo", "engine: gloo", r"line 18: calibration.engine: is not a key of this mapping"),
            ("  backend: gloo\n", "", r"line 17: calibration: backend is missing"),
            ("median: 1.5 %", "median: 1.5", r"line 21: calibration.errors.all_reduce.median: '1.5' is not a share"),
            (
                "ranks: [2, 8]",
                "ranks: [2]",
                r"calibration.errors.all_reduce.ranks: must be the minimum and the maximum",
            ),
        ],
    )
    def test_what_is_wrong_with_it(self, old: str, new: str, said: str) -> None:
        assert old in self.MEASURED
        with pytest.raises(UsageError, match=said) as caught:
            cluster_file.parse(self.MEASURED.replace(old, new, 1), "c.yaml")
        assert str(caught.value).startswith("c.yaml, line")

    @pytest.mark.parametrize("text", ["", "[1, 2]", "a: [", "a: &x 1\nb: *x", "{? [1] : 2}", "x" * (2 << 20)])
    def test_what_is_no_cluster_at_all(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"c\.yaml"):
            cluster_file.parse(text, "c.yaml")


def flat(members: int) -> Geometry:
    return Geometry(members=members, tier=0, nodes=1, local=members, sharing=0)


class TestTransfers:
    @given(st.integers(2, 1024), st.integers(0, 1 << 34))
    def test_the_rings_share(self, members: int, size_bytes: int) -> None:
        """2(n-1)/n of the time of all bytes; a gather half of it. To the nanosecond, rounded up."""
        cluster = ClusterModel(tiers=(Tier(name="only", spans=0, latency_ns=0, rate=10**9),))
        exact = -(-2 * (members - 1) * size_bytes // members)

        assert collective_ns(cluster, "all_reduce", size_bytes, flat(members)) == exact
        assert collective_ns(cluster, "all_gather", size_bytes, flat(members)) == -(
            -(members - 1) * size_bytes // members
        )

    def test_latency_counts_by_round_and_by_level(self) -> None:
        tiers = (Tier(name="only", spans=0, latency_ns=10, rate=10**9),)
        ring = ClusterModel(tiers=tiers, algorithms={"default": (Choice(Algorithm.RING),)})
        tree = ClusterModel(tiers=tiers, algorithms={"default": (Choice(Algorithm.TREE),)})

        assert collective_ns(ring, "all_reduce", 0, flat(64)) == 2 * 63 * 10
        assert collective_ns(tree, "all_reduce", 0, flat(64)) == 2 * 6 * 10
        assert collective_ns(tree, "broadcast", 1000, flat(5)) == 3 * 10 + 1000
        assert collective_ns(ring, "broadcast", 1000, flat(5)) == 4 * 10 + 1000
        assert collective_ns(ring, "barrier", 0, flat(8)) == 2 * 3 * 10
        assert collective_ns(ring, "all_reduce", 1000, flat(1)) == 0

    def test_hierarchical_sends_a_part_between_nodes(self) -> None:
        tiers = (
            Tier(name="in", spans=8, latency_ns=1, rate=8 * 10**9),
            Tier(name="out", spans=0, latency_ns=100, rate=10**9),
        )
        where = Geometry(members=32, tier=1, nodes=4, local=8, sharing=0)
        cluster = ClusterModel(tiers=tiers, algorithms={"default": (Choice(Algorithm.HIERARCHICAL),)})
        inside = 7 * 1 + 7 * 8000 // 8 // 8
        between = 2 * 3 * 100 + 2 * 3 * 1000 // 4

        assert collective_ns(cluster, "all_reduce", 8000, where) == 2 * inside + between

    @given(st.integers(2, 512), st.integers(0, 1 << 30), st.integers(0, 10**6))
    def test_trees_count_levels(self, members: int, size_bytes: int, latency_ns: int) -> None:
        """L for each of ceil(log2 n) levels and S/B, up and down for an all-reduce."""
        tier = Tier(name="only", spans=0, latency_ns=latency_ns, rate=10**9)
        cluster = ClusterModel(tiers=(tier,), algorithms={"default": (Choice(Algorithm.TREE),)})
        levels = math.ceil(math.log2(members))

        assert collective_ns(cluster, "all_reduce", size_bytes, flat(members)) == 2 * (levels * latency_ns + size_bytes)
        assert collective_ns(cluster, "reduce", size_bytes, flat(members)) == levels * latency_ns + size_bytes

    def test_a_tree_is_quicker_for_small_messages_and_a_ring_for_large_ones(self) -> None:
        tiers = (Tier(name="only", spans=0, latency_ns=1000, rate=10**9),)
        ring, tree = (
            ClusterModel(tiers=tiers, algorithms={"default": (Choice(a),)}) for a in (Algorithm.RING, Algorithm.TREE)
        )
        for members in (8, 64):
            small, large = (
                [collective_ns(cluster, "all_reduce", size_bytes, flat(members)) for cluster in (ring, tree)]
                for size_bytes in (8, 1 << 28)
            )
            assert small[0] > small[1] and large[0] < large[1]

    @given(st.integers(2, 16), st.integers(2, 8), st.integers(1, 1 << 20))
    def test_hierarchical_moves_a_parts_ring_between_nodes(self, nodes: int, local: int, part_bytes: int) -> None:
        """Inside nodes that cost nothing: the ring of `nodes` over 1/local of the bytes."""
        size_bytes = part_bytes * local
        tiers = (
            Tier(name="in", spans=local, latency_ns=0, rate=0),
            Tier(name="out", spans=0, latency_ns=7, rate=10**9),
        )
        where = Geometry(members=nodes * local, tier=1, nodes=nodes, local=local, sharing=0)
        cluster = ClusterModel(tiers=tiers, algorithms={"all_reduce": (Choice(Algorithm.HIERARCHICAL),)})
        ring = 2 * (nodes - 1) * 7 - (-2 * (nodes - 1) * part_bytes // nodes)

        assert collective_ns(cluster, "all_reduce", size_bytes, where) == ring

    def test_groups_that_leave_a_node_share_its_links(self) -> None:
        tiers = (
            Tier(name="in", spans=4, latency_ns=0, rate=0),
            Tier(name="out", spans=0, latency_ns=0, rate=10**9, node_rate=2 * 10**9),
        )
        for sharing, factor in ((1, 1), (2, 1), (4, 2), (8, 4)):
            where = Geometry(members=2, tier=1, nodes=2, local=1, sharing=sharing)
            assert collective_ns(ClusterModel(tiers=tiers), "all_reduce", 1000, where) == 1000 * factor

    def test_a_ring_over_several_nodes_uses_the_link_of_each_of_its_ranks(self) -> None:
        """Bounded by what all groups of a node share, and by the links inside a node."""

        def taken_ns(nodes: int, local: int, *, sharing: int = 1, **links: int) -> int:
            rates = {"inside": 8, "rate": 1, "node_rate": 0} | links
            tiers = (
                Tier(name="in", spans=8, latency_ns=0, rate=rates["inside"] * 10**9),
                Tier(
                    name="out", spans=0, latency_ns=0, rate=rates["rate"] * 10**9, node_rate=rates["node_rate"] * 10**9
                ),
            )
            where = Geometry(members=nodes * local, tier=1, nodes=nodes, local=local, sharing=sharing)
            found = {
                op: collective_ns(ClusterModel(tiers=tiers), op, 16_000, where)
                for op in ("all_gather", "reduce_scatter", "all_reduce", "broadcast")
            }
            assert found["all_reduce"] == 2 * found["all_gather"] == 2 * found["reduce_scatter"]
            assert found["broadcast"] * (nodes * local - 1) == pytest.approx(
                found["all_gather"] * nodes * local, abs=20
            )
            return found["all_gather"]

        assert taken_ns(16, 1) == 15_000
        assert [taken_ns(2, local) for local in (2, 4, 8)] == [12_000 // 2, 14_000 // 4, 15_000 // 8]
        assert taken_ns(2, 8, inside=3) == 5_000, "inside a node it passes every rank"
        assert taken_ns(2, 8, node_rate=5) == 3_000
        assert taken_ns(2, 4, node_rate=4, sharing=2) == 7_000, "two such groups in each node"
        assert taken_ns(2, 8, inside=0, rate=0) == 0, "a rate of zero is no limit"

    def test_fully_sharded_weights_on_the_assumed_cluster(self) -> None:
        where = Geometry(members=16, tier=1, nodes=2, local=8, sharing=1)
        assert formula_ns(example(), "all_gather", 10**9, where) == 15 * 6_000 + 10**9 * 15 // 16 * 10 // 4_000

    def test_an_all_to_all_leaves_a_node_on_the_links_of_its_ranks(self) -> None:
        """Of each rank's bytes, those for ranks of other nodes, while those for its own go at the rate inside."""
        where = Geometry(members=16, tier=1, nodes=2, local=8, sharing=1)
        taken_ns = [
            collective_ns(
                ClusterModel(
                    tiers=(
                        Tier(name="in", spans=8, latency_ns=0, rate=inside * 10**9),
                        Tier(name="out", spans=0, latency_ns=0, rate=25 * 10**9, node_rate=node_rate * 10**9),
                    )
                ),
                "all_to_all",
                10**9,
                where,
            )
            for inside, node_rate in ((450, 0), (450, 25), (1, 0))
        ]
        assert taken_ns == [20 * 10**6, 160 * 10**6, 10**9 * 7 // 16]

    def test_an_all_to_all_over_links_that_hold_several_nodes_has_one_link_for_each_rank(self) -> None:
        """So all that a rank sends goes over it, to its own node or not."""
        one = ClusterModel(tiers=(Tier(name="only", spans=0, latency_ns=0, rate=10**9),))
        two_nodes = Geometry(members=8, tier=0, nodes=2, local=4, sharing=1)
        assert collective_ns(one, "all_to_all", 8000, two_nodes) == collective_ns(one, "all_to_all", 8000, flat(8))
        assert collective_ns(one, "all_to_all", 8000, two_nodes) == 7000

    def test_an_all_to_all_waits_for_the_node_that_sends_most(self) -> None:
        """Nodes of 8, 8 and 4 with one link each: each of 8 has 12 of 20 parts for other nodes."""
        tiers = (
            Tier(name="in", spans=8, latency_ns=0, rate=10**12),
            Tier(name="out", spans=0, latency_ns=0, rate=10**9, node_rate=10**9),
        )
        where = Geometry(members=20, tier=1, nodes=3, local=4, most=8, sharing=1)
        assert collective_ns(ClusterModel(tiers=tiers), "all_to_all", 20_000, where) == 8 * 12 * 1000
        own_links = ClusterModel(tiers=(tiers[0], replace(tiers[1], node_rate=0)))
        assert collective_ns(own_links, "all_to_all", 20_000, where) == 16_000, "each of 4 has 16 parts for others"

    def test_ranks_of_a_node_that_lie_in_different_islands(self) -> None:
        """Nodes of eight with two NVLink islands: along dp, a group has a rank in each island of each node."""
        tiers = (
            Tier(name="nvlink", spans=4, latency_ns=0, rate=300 * 10**9),
            Tier(name="pcie", spans=8, latency_ns=0, rate=20 * 10**9),
            Tier(name="fabric", spans=0, latency_ns=0, rate=50 * 10**9),
        )
        cluster, mesh = ClusterModel(tiers=tiers), Mesh.parse("dp=4,tp=4")
        layout = Layout.of(mesh)
        topology = Topology.of(mesh, layout, cluster, np.full(mesh.world, 10**6))
        placed = topology.place(parse("dp", mesh), np.ones(layout.sizes, dtype=bool))
        assert {collective_ns(cluster, "all_gather", 1 << 28, where) for where in placed.geometries} == {
            math.ceil((1 << 28) * 3 / 4 / 20)
        }

    def test_without_a_choice_a_small_all_reduce_is_a_tree_and_a_large_one_a_ring(self) -> None:
        tiers = (Tier(name="only", spans=0, latency_ns=10_000, rate=10**9),)
        assert collective_ns(ClusterModel(tiers=tiers), "all_reduce", 4, flat(4096)) == 2 * (12 * 10_000 + 4)
        large = collective_ns(ClusterModel(tiers=tiers), "all_reduce", 1 << 30, flat(4))
        assert large == 6 * 10_000 + (3 << 29)

    def test_a_nodes_links_are_shared(self) -> None:
        tiers = (
            Tier(name="in", spans=8, latency_ns=0, rate=10**12),
            Tier(name="out", spans=0, latency_ns=0, rate=10**9, node_rate=2 * 10**9),
        )
        assert point_to_point_ns(ClusterModel(tiers=tiers), 1000, 1, 2) == 1000
        assert point_to_point_ns(ClusterModel(tiers=tiers), 1000, 1, 8) == 4000
        assert point_to_point_ns(ClusterModel(tiers=tiers), 1000, 0, 0) == 1


class TestWhereGroupsLie:
    def place(self, text: str, mesh: Mesh) -> set[Geometry]:
        layout = Layout.of(mesh)
        tiers = (
            Tier(name="in", spans=8, latency_ns=0, rate=1),
            Tier(name="mid", spans=32, latency_ns=0, rate=1),
            Tier(name="out", spans=0, latency_ns=0, rate=1, node_rate=1),
        )
        topology = Topology.of(mesh, layout, ClusterModel(tiers=tiers), np.full(mesh.world, 10**6))
        everyone = np.ones(layout.sizes, dtype=bool)
        return set(topology.place(parse(text, mesh), everyone).geometries)

    def test_by_the_order_of_the_axes(self) -> None:
        near, far = Mesh.parse("dp=16,tp=8"), Mesh.parse("dp=16,tp=8", order="tp,dp")

        assert self.place("tp", near) == {Geometry(members=8, tier=0, nodes=1, local=8, sharing=0)}
        assert self.place("dp", near) == {Geometry(members=16, tier=2, nodes=16, local=1, sharing=8)}
        assert self.place("tp", far) == {Geometry(members=8, tier=2, nodes=8, local=1, sharing=8)}
        assert self.place("dp", far) == {Geometry(members=16, tier=1, nodes=2, local=8, sharing=1)}

    def test_a_group_that_is_spread_unevenly_has_the_links_of_the_node_with_the_fewest(self) -> None:
        found = self.place("dp", Mesh.parse("tp=1,dp=12"))
        assert found == {Geometry(members=12, tier=1, nodes=2, local=4, most=8, sharing=1)}

    def test_neighbours_at_a_nodes_edge_are_farther(self) -> None:
        found = self.place("tp+1", Mesh.parse("tp=16"))
        assert found == {
            Geometry(members=2, tier=0, nodes=1, local=2, sharing=0),
            Geometry(members=2, tier=1, nodes=2, local=1, sharing=1),
        }
