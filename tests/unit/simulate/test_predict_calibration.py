"""From measured times to a cluster model: what fits the formula, what becomes a table, and what is said of it."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.errors import UsageError
from prismdbg.jobs.record.calibrate import Measurement
from prismdbg.rank.calibration import Plan, taken_ns
from prismdbg.render import calibration_text
from prismdbg.simulate import quantities
from prismdbg.simulate.cluster import cluster_file, cluster_text
from prismdbg.simulate.cluster.calibration import Calibrated, Sample, calibrate_model
from prismdbg.simulate.cluster.cluster import (
    Algorithm,
    Calibration,
    Choice,
    ClusterModel,
    Factor,
    FactorFit,
    Fit,
    Tier,
)
from prismdbg.simulate.cluster.curve import Curve, nearest
from prismdbg.simulate.cluster.factor_fit import FactorCase, fit_factor, with_factors
from prismdbg.simulate.cluster.slowdown import Slowdown
from prismdbg.simulate.cluster.transfer import SEND, Geometry, collective_ns, is_carried, point_to_point_ns
from prismdbg.simulate.engine.changes import Changes

SIZES = tuple(256 << shift for shift in range(0, 20, 2))
FAR = Tier(name="network", spans=0, latency_ns=30_000, rate=10**9)
ORIGIN = Calibration(machine="none", backend="formula", date="2026-01-01", fits={})


def inside(members: int) -> Geometry:
    return Geometry(members=members, tier=0, nodes=1, local=members, sharing=0)


def across(nodes: int, local: int) -> Geometry:
    return Geometry(members=nodes * local, tier=1, nodes=nodes, local=local, sharing=1)


def time_ns(model: ClusterModel, op: str, size_bytes: int, where: Geometry) -> int:
    if op == SEND:
        return point_to_point_ns(model, size_bytes, where.tier, 0)
    return collective_ns(model, op, size_bytes, where)


def samples(model: ClusterModel, ops: dict[str, list[Geometry]], noise: float = 0.0) -> list[Sample]:
    draw = random.Random(1)
    return [
        Sample(
            op=op,
            where=where,
            size_bytes=size,
            times_ns=tuple(
                max(round(time_ns(model, op, size, where) * draw.lognormvariate(0, noise)), 1) for _ in range(9)
            ),
        )
        for op, groups in ops.items()
        for where in groups
        for size in ((0,) if op == "barrier" else SIZES)
    ]


def fitted(found: list[Sample], *, nodes: int = 1) -> Calibrated:
    tiers = [("node", 4), ("network", 0)] if nodes > 1 else [("node", 0)]
    return calibrate_model(found, tiers, 4, origin=ORIGIN)


class TestWhatTheFormulaDescribes:
    TRUE = ClusterModel(
        tiers=(Tier(name="node", spans=0, latency_ns=20_000, rate=2 * 10**9),),
        algorithms={"all_reduce": (Choice(Algorithm.TREE, 1 << 14), Choice(Algorithm.RING))},
    )
    OPS = {op: [inside(2), inside(4), inside(8)] for op in ("all_reduce", "all_gather", "broadcast", "barrier")}

    def test_comes_out_again(self) -> None:
        found = fitted(samples(self.TRUE, self.OPS | {SEND: [inside(2)]})).cluster

        assert found.tiers[0].latency_ns == pytest.approx(20_000, rel=0.01)
        assert found.tiers[0].rate == pytest.approx(2 * 10**9, rel=0.01)
        assert found.algorithms["all_reduce"] == self.TRUE.algorithms["all_reduce"]
        assert found.is_measured and not found.tiers[0].measured
        assert found.calibration is not None
        assert found.calibration.fits["all_reduce"].largest_ppm < 20_000
        assert found.calibration.fits["all_gather"].groups == (2, 8)

    def test_from_noise_and_a_few_odd_points(self) -> None:
        found = samples(self.TRUE, self.OPS, noise=0.02)
        odd = [replace(s, times_ns=tuple(t * 5 for t in s.times_ns)) if i % 17 == 0 else s for i, s in enumerate(found)]
        tier = fitted(odd).cluster.tiers[0]

        assert tier.latency_ns == pytest.approx(20_000, rel=0.05)
        assert tier.rate == pytest.approx(2 * 10**9, rel=0.05)

    def test_two_tiers(self) -> None:
        true = ClusterModel(
            tiers=(
                Tier(name="node", spans=4, latency_ns=3_000, rate=10**10),
                Tier(name="network", spans=0, latency_ns=30_000, rate=10**9),
            ),
            ranks_per_node=4,
            algorithms={"all_reduce": (Choice(Algorithm.HIERARCHICAL),)},
        )
        groups = [inside(2), inside(4), across(2, 1), across(2, 4)]
        found = fitted(samples(true, {"all_reduce": groups, "all_gather": groups}), nodes=2).cluster

        assert [t.latency_ns for t in found.tiers] == pytest.approx([3_000, 30_000], rel=0.02)
        assert [t.rate for t in found.tiers] == pytest.approx([10**10, 10**9], rel=0.02)
        assert found.algorithms["all_reduce"][-1].algorithm is Algorithm.HIERARCHICAL
        assert found.calibration is not None and found.calibration.nodes == 2

    @pytest.mark.parametrize("links", [1, 2])
    def test_nodes_with_fewer_links_than_ranks(self, links: int) -> None:
        """All ranks of a node share them; from groups of one and of several ranks in each node."""
        true = ClusterModel(
            tiers=(
                Tier(name="node", spans=8, latency_ns=3_000, rate=10**11),
                Tier(name="network", spans=0, latency_ns=30_000, rate=10**9, node_rate=links * 10**9),
            ),
        )
        groups = [inside(8), across(2, 1), across(2, 8)]
        measured = samples(true, {"all_gather": groups, "all_to_all": groups}, noise=0.02)
        found = calibrate_model(measured, [("node", 8), ("network", 0)], 8, origin=ORIGIN).cluster

        assert found.tiers[1].rate == pytest.approx(10**9, rel=0.03)
        assert found.tiers[1].node_rate == links * found.tiers[1].rate
        assert not found.tiers[0].node_rate and not found.tiers[1].measured

    @pytest.mark.parametrize("inside_rate", [2 * 10**9, 10**11])
    def test_rings_that_the_links_inside_a_node_bound(self, inside_rate: int) -> None:
        true = ClusterModel(
            tiers=(
                Tier(name="node", spans=4, latency_ns=3_000, rate=inside_rate),
                Tier(name="network", spans=0, latency_ns=30_000, rate=10**9),
            ),
            ranks_per_node=4,
        )
        groups = [inside(4), across(2, 1), across(2, 4)]
        found = fitted(samples(true, {"all_gather": groups}, noise=0.02), nodes=2).cluster

        assert [t.rate for t in found.tiers] == pytest.approx([inside_rate, 10**9], rel=0.03)
        assert not found.tiers[1].node_rate

    def test_links_nobody_used(self) -> None:
        with pytest.raises(UsageError, match="nothing was measured over network"):
            fitted(samples(self.TRUE, {"all_reduce": [inside(2)]}), nodes=2)


class TestWhatItDoesNotDescribe:
    def odd(self) -> list[Sample]:
        """A step in the middle, as where a library changes its protocol."""
        found = samples(
            TestWhatTheFormulaDescribes.TRUE, {"all_gather": [inside(2), inside(4)], "all_to_all": [inside(4)]}
        )
        return [
            replace(s, times_ns=tuple(t * 3 for t in s.times_ns))
            if s.op == "all_to_all" and s.size_bytes > 1 << 16
            else s
            for s in found
        ]

    def test_becomes_a_table_that_is_exact_where_it_was_measured(self) -> None:
        calibrated = fitted(self.odd())
        tier = calibrated.cluster.tiers[0]

        assert set(tier.measured) == {"all_to_all"}
        assert [c.model_ns for c in calibrated.compared if c.sample.op == "all_to_all"] == [
            round(s.time_ns) for s in self.odd() if s.op == "all_to_all"
        ]

    def test_its_error_is_told_where_it_was_not_looked(self) -> None:
        calibrated = fitted(self.odd())
        assert calibrated.cluster.calibration is not None
        fits = calibrated.cluster.calibration.fits

        assert fits["all_to_all"].largest_ppm > 300_000, "at the step a neighbour says little"
        assert fits["all_gather"].largest_ppm < 50_000
        ends = [c for c in calibrated.compared if c.sample.size_bytes in (SIZES[0], SIZES[-1])]
        assert all(c.unseen_ns is None for c in ends)

    def test_links_with_a_formula_count_beside_links_with_a_table(self) -> None:
        """Of a table the ends do not count: it repeats them."""
        true = ClusterModel(
            tiers=(
                Tier(name="node", spans=4, latency_ns=3_000, rate=10**11),
                Tier(name="network", spans=0, latency_ns=30_000, rate=10**9),
            ),
            ranks_per_node=4,
        )
        found = samples(true, {"all_gather": [inside(4), across(2, 1), across(2, 4)]})
        odd = {inside(4): 3.0, across(2, 1): 1.06, across(2, 4): 0.96}
        changed = [
            replace(s, times_ns=tuple(round(t * odd[s.where]) for t in s.times_ns))
            if s.where.tier or s.size_bytes > 1 << 16
            else s
            for s in found
        ]
        calibrated = fitted(changed, nodes=2)
        near, far = calibrated.cluster.tiers
        assert near.measured and not far.measured
        assert calibrated.cluster.calibration is not None
        errors = [
            abs(c.error)
            for c in calibrated.compared
            if c.sample.where.tier or c.sample.size_bytes not in (SIZES[0], SIZES[-1])
        ]
        fit = calibrated.cluster.calibration.fits["all_gather"]
        assert fit.median_ppm == quantities.rounded_up_ppm(median(errors))
        assert fit.largest_ppm == quantities.rounded_up_ppm(max(errors))

    def test_halves_that_disagree(self) -> None:
        sample = Sample(op="all_reduce", where=inside(2), size_bytes=8, times_ns=(100, 150, 100, 150))
        assert sample.again == pytest.approx(1 / 3)


class TestTables:
    CURVE = Curve(members=4, sizes_bytes=(1000, 4000, 16_000), times_ns=(100, 200, 3200))
    MODEL = ClusterModel(
        tiers=(Tier(name="only", spans=0, latency_ns=10, rate=10**9, measured={"all_gather": (CURVE,)}),),
        is_measured=True,
    )

    def test_between_two_sizes_on_the_line(self) -> None:
        assert collective_ns(self.MODEL, "all_gather", 2000, inside(4)) == 100 + 100 // 3
        assert collective_ns(self.MODEL, "all_gather", 8000, inside(4)) == 200 + 1000
        assert [collective_ns(self.MODEL, "all_gather", s, inside(4)) for s in self.CURVE.sizes_bytes] == [
            100,
            200,
            3200,
        ]

    def test_beyond_them_as_the_formula_goes_on(self) -> None:
        latency, taken = 3 * 10, 3 * 16_000 // 4
        assert collective_ns(self.MODEL, "all_gather", 160_000, inside(4)) == round(
            3200 * (latency + 10 * taken) / (latency + taken)
        )
        assert 0 < collective_ns(self.MODEL, "all_gather", 0, inside(4)) < 100

    def test_other_groups_by_the_nearest(self) -> None:
        here, there = 7 * 10 + 7 * 4000 // 8, 3 * 10 + 3 * 4000 // 4
        assert collective_ns(self.MODEL, "all_gather", 4000, inside(8)) == round(200 * here / there)
        two = Curve(members=2, sizes_bytes=(1,), times_ns=(1,))
        assert [nearest((two, self.CURVE), inside(n)).members for n in (2, 3, 4, 100)] == [2, 4, 4, 4]

    def test_as_many_ranks_in_fewer_nodes(self) -> None:
        """Of two nodes with eight ranks each: sixteen nodes with one have an eighth of the links."""
        curve = Curve(members=16, nodes=2, sizes_bytes=(16_000,), times_ns=(3_000,))
        tiers = (
            Tier(name="in", spans=8, latency_ns=0, rate=10**12),
            Tier(name="out", spans=0, latency_ns=0, rate=10**9, measured={"all_gather": (curve,)}),
        )
        model = ClusterModel(tiers=tiers)
        assert collective_ns(model, "all_gather", 16_000, across(2, 8)) == 3_000
        assert collective_ns(model, "all_gather", 16_000, across(16, 1)) == 3_000 * 8
        assert [is_carried(model, "all_gather", 16_000, where) for where in (across(2, 8), across(16, 1))] == [0, 1]
        assert is_carried(model, "all_gather", 32_000, across(2, 8)), "no such size was measured"
        assert not is_carried(model, "all_reduce", 16_000, across(16, 1)), "only the formula says anything of it"

    def test_the_nearest_has_as_many_ranks_in_a_node(self) -> None:
        def of(nodes: int, local: int) -> Curve:
            return Curve(members=nodes * local, nodes=nodes, sizes_bytes=(1,), times_ns=(1,))

        curves = of(8, 1), of(2, 4), of(4, 4)
        found = {where: nearest(curves, across(*where)) for where in ((16, 1), (8, 1), (8, 2), (2, 4), (3, 4), (9, 4))}
        assert {where: (curve.nodes, curve.members) for where, curve in found.items()} == {
            (16, 1): (8, 8), (8, 1): (8, 8), (8, 2): (4, 16), (2, 4): (2, 8), (3, 4): (4, 16), (9, 4): (4, 16),
        }  # fmt: skip

    def test_how_they_lay_may_be_unknown(self) -> None:
        """In an older file: then the times are those of every group with as many ranks, and doubted beyond a node."""
        curve = Curve(members=16, sizes_bytes=(16_000,), times_ns=(3_000,))
        model = ClusterModel(
            tiers=(Tier(name="any", spans=0, latency_ns=1, rate=1, measured={"all_gather": (curve,)}),)
        )
        for where in (across(2, 8), across(16, 1), inside(16)):
            here = replace(where, tier=0)
            assert collective_ns(model, "all_gather", 16_000, here) == 3_000
            assert is_carried(model, "all_gather", 16_000, here) == (where.nodes > 1)

    def test_of_two_ranks_somewhere_there_is_one_in_each_of_two_nodes(self) -> None:
        """What was measured is what the formula says of them, so it is carried over to what the formula says here."""
        tiers = (
            Tier(name="in", spans=8, latency_ns=1000, rate=10**11),
            Tier(name="out", spans=0, latency_ns=0, rate=10**9),
        )
        plain = ClusterModel(tiers=tiers)
        curve = Curve(
            members=2, sizes_bytes=(16_000,), times_ns=(collective_ns(plain, "all_to_all", 16_000, across(2, 1)),)
        )
        model = replace(plain, tiers=(tiers[0], replace(tiers[1], measured={"all_to_all": (curve,)})))
        for where in (across(2, 2), across(2, 8), across(4, 2)):
            expected_ns = collective_ns(plain, "all_to_all", 16_000, where)
            assert collective_ns(model, "all_to_all", 16_000, where) == pytest.approx(expected_ns, rel=0.01)

    def test_a_group_that_is_spread_unevenly_was_not_measured(self) -> None:
        """Eight ranks of one node and four of another have four links between them, not six."""
        uneven = replace(across(2, 6), local=4, most=8)
        curve = Curve(members=12, nodes=2, sizes_bytes=(14_400,), times_ns=(3_000,))
        tiers = (
            Tier(name="in", spans=8, latency_ns=0, rate=10**12),
            Tier(name="out", spans=0, latency_ns=0, rate=10**9, measured={"all_gather": (curve,)}),
        )
        model = ClusterModel(tiers=tiers)
        assert [is_carried(model, "all_gather", 14_400, where) for where in (across(2, 6), uneven)] == [False, True]
        assert collective_ns(model, "all_gather", 14_400, uneven) == 3_000 * 6 // 4

    def test_groups_with_as_many_ranks_have_a_table_each(self) -> None:
        """One of each of four nodes, and all four of one."""
        true = ClusterModel(tiers=(Tier(name="node", spans=2, latency_ns=3_000, rate=10**10), FAR), ranks_per_node=2)
        found = samples(true, {"all_gather": [inside(2), across(4, 1), across(2, 2)]})
        odd = [
            replace(s, times_ns=tuple(t * 3 for t in s.times_ns))
            if s.where.local == 1 and s.size_bytes > 1 << 16
            else s
            for s in found
        ]
        tiers = [("node", 2), ("network", 0)]
        cluster = calibrate_model(odd, tiers, 2, origin=ORIGIN).cluster
        assert {(c.members, c.nodes) for c in cluster.tiers[1].measured["all_gather"]} == {(4, 4), (4, 2)}
        for sample in odd:
            if sample.where.tier:
                assert time_ns(cluster, sample.op, sample.size_bytes, sample.where) == sample.time_ns

    def test_what_has_no_table_keeps_the_formula(self) -> None:
        without = replace(self.MODEL, tiers=(replace(self.MODEL.tiers[0], measured={}),))
        for op in ("all_reduce", "barrier"):
            assert collective_ns(self.MODEL, op, 4000, inside(4)) == collective_ns(without, op, 4000, inside(4))

    def test_messages(self) -> None:
        curve = Curve(members=2, sizes_bytes=(1000, 2000), times_ns=(50, 80))
        model = ClusterModel(
            tiers=(Tier(name="only", spans=0, latency_ns=0, rate=10**9, node_rate=10**9, measured={SEND: (curve,)}),)
        )
        assert [point_to_point_ns(model, s, 0, 0) for s in (1000, 2000, 4000)] == [50, 80, 160]
        assert point_to_point_ns(model, 1000, 0, 2) == 100, "two that share the links take twice as long"

    def test_a_slower_tier_has_slower_tables(self) -> None:
        slow = Changes(tier_ppm={"only": 3_000_000}).cluster(self.MODEL)
        assert collective_ns(slow, "all_gather", 4000, inside(4)) == 600
        again = Changes(tier_ppm={"only": 2_000_000}).cluster(slow)
        assert collective_ns(again, "all_gather", 4000, inside(4)) == 1200


class TestWhatIfATierWereSlower:
    """Nodes of eight. Each link is far from the formula where it was measured."""

    TIERS = (
        Tier(name="nvlink", spans=8, latency_ns=2_000, rate=450 * 10**9),
        Tier(name="fabric", spans=0, latency_ns=6_000, rate=50 * 10**9, node_rate=400 * 10**9),
    )
    LAYOUTS = [inside(2), inside(8), across(2, 8), across(16, 1), across(4, 2), across(2, 1), across(8, 8)]
    SHARED = [replace(across(8, 1), sharing=8), replace(across(4, 2), sharing=4)]

    def with_table(self, op: str, where: Geometry, tiers: tuple[Tier, ...] = TIERS) -> ClusterModel:
        sizes = (1 << 10, 1 << 20, 1 << 28)
        formula_ns = [collective_ns(ClusterModel(tiers=tiers), op, size, where) for size in sizes]
        curve = Curve(
            members=where.members, nodes=where.nodes, sizes_bytes=sizes, times_ns=tuple(3 * ns + 1 for ns in formula_ns)
        )
        changed = [replace(t, measured={op: (curve,)}) if i == where.tier else t for i, t in enumerate(tiers)]
        return ClusterModel(tiers=tuple(changed))

    @pytest.mark.parametrize("op", ["all_gather", "all_reduce", "all_to_all", "broadcast"])
    @pytest.mark.parametrize("rate", [450 * 10**9, 200 * 10**9])
    def test_nothing_gets_faster_and_nothing_counts_twice(self, op: str, rate: int) -> None:
        tiers = replace(self.TIERS[0], rate=rate), self.TIERS[1]
        for measured in self.LAYOUTS:
            model = self.with_table(op, measured, tiers)
            for tier in ("nvlink", "fabric"):
                slow = Changes(tier_ppm={tier: 2_000_000}).cluster(model)
                for where in self.LAYOUTS + self.SHARED:
                    for size_bytes in (1 << 10, 3 << 15, 1 << 28, 1 << 30):
                        before_ns, after_ns = (collective_ns(m, op, size_bytes, where) for m in (model, slow))
                        assert before_ns <= after_ns <= 2 * before_ns + 1, (measured, tier, where, size_bytes)

    def test_links_that_a_group_does_not_use_change_nothing(self) -> None:
        model = self.with_table("all_gather", across(2, 8))
        slow = Changes(tier_ppm={"nvlink": 4_000_000}).cluster(model)
        for where in [self.SHARED[0], across(16, 1)]:
            taken_ns = [collective_ns(m, "all_gather", 1 << 28, where) for m in (model, slow)]
            assert taken_ns[0] == taken_ns[1]

    def test_where_it_was_measured_the_links_inside_a_node_may_become_the_slowest(self) -> None:
        model, plain = self.with_table("all_gather", across(2, 8)), ClusterModel(tiers=self.TIERS)
        for tier, factor in (("nvlink", 4_000_000), ("fabric", 100_000)):
            changes = Changes(tier_ppm={tier: factor})
            before_ns, after_ns = (
                [collective_ns(m, "all_gather", 1 << 28, across(2, 8)) for m in (each, changes.cluster(each))]
                for each in (plain, model)
            )
            assert after_ns[1] / after_ns[0] == pytest.approx(before_ns[1] / before_ns[0], rel=0.001)

    def test_messages_are_slower_by_the_factor(self) -> None:
        curve = Curve(members=2, sizes_bytes=(1000, 2000), times_ns=(50, 80))
        tier = Tier(name="only", spans=0, latency_ns=0, rate=10**9, node_rate=10**9, measured={SEND: (curve,)})
        slow = Changes(tier_ppm={"only": 2_000_000}).cluster(ClusterModel(tiers=(tier,)))
        assert [point_to_point_ns(slow, s, 0, sharing) for s in (1000, 4000) for sharing in (0, 2)] == [
            100, 200, 320, 640,
        ]  # fmt: skip


def slowdowns() -> st.SearchStrategy[Slowdown]:
    points = st.dictionaries(st.integers(2, 1 << 20), st.integers(10**6, 10**9), max_size=3)
    return points.map(lambda found: Slowdown(tuple(sorted(found.items()))))


@st.composite
def clusters(draw: st.DrawFn) -> ClusterModel:
    def curves() -> tuple[Curve, ...]:
        points = draw(st.dictionaries(st.integers(0, 1 << 40), st.integers(1, 10**12), min_size=1, max_size=4))
        sizes = tuple(sorted(points))
        times = tuple(points[size] for size in sizes)
        places = st.tuples(st.integers(2, 1 << 20), st.just(0)) | st.tuples(st.integers(2, 99), st.integers(1, 99))
        groups = draw(st.lists(places, min_size=1, max_size=3, unique=True))
        return tuple(
            Curve(members=each * max(nodes, 1), nodes=nodes, sizes_bytes=sizes, times_ns=times)
            for each, nodes in groups
        )

    def tier(name: str, spans: int) -> Tier:
        return Tier(
            name=name,
            spans=spans,
            latency_ns=draw(st.integers(0, 10**12)),
            rate=draw(st.integers(1, 10**13)),
            node_rate=draw(st.integers(0, 10**13)),
            measured={op: curves() for op in draw(st.sets(st.sampled_from(["all_reduce", "barrier", SEND])))},
        )

    fits = {"all_to_all": Fit(median_ppm=12_500, largest_ppm=1_000_000, groups=(2, 4), sizes_bytes=(0, 1 << 26))}
    factors = {factor: FactorFit(median_ppm=1_000, largest_ppm=20_500, cases=3) for factor in Factor}
    about = st.builds(
        Calibration,
        machine=st.text(),
        backend=st.just("gloo"),
        date=st.text(),
        fits=st.just(fits),
        factors=st.sampled_from([{}, factors]),
    )
    return ClusterModel(
        tiers=(tier("near", draw(st.integers(2, 8))), tier("far links", 0)),
        ranks_per_node=draw(st.integers(1, 8)),
        algorithms=draw(
            st.dictionaries(
                st.sampled_from(["all_reduce", "default"]),
                st.sampled_from([(Choice(Algorithm.TREE, 1 << 18), Choice(Algorithm.RING)), (Choice(Algorithm.RING),)]),
            )
        ),
        eager_bytes=draw(st.integers(0, 1 << 30)),
        compute_overlap_ppm=draw(st.integers(1, 10**9)),
        transfer_overlap_ppm=draw(st.integers(1, 10**9)),
        processors=draw(slowdowns()),
        shared_links=draw(slowdowns()),
        compute_ppm=draw(st.dictionaries(st.integers(0, 99), st.integers(1, 10**9))),
        link_ppm=draw(st.dictionaries(st.integers(0, 99), st.integers(1, 10**9))),
        is_measured=draw(st.booleans()),
        calibration=draw(st.none() | about),
    )


@given(clusters())
def test_what_is_written_is_read_again(cluster: ClusterModel) -> None:
    assert cluster_file.parse(cluster_text.write(cluster, ["of one", "of two lines"])) == cluster


@given(st.integers(0, 1 << 60))
def test_quantities_are_said_exactly(value: int) -> None:
    time_ns = min(value, quantities.LONGEST_NS)
    assert quantities.time_ns(quantities.say_time(time_ns)) == time_ns
    assert quantities.size_bytes(quantities.say_size(value)) == value
    assert quantities.rate(quantities.say_rate(value)) == value
    assert quantities.percent_ppm(quantities.say_percent(value)) == value


class TestWhatARankMeasures:
    def test_from_the_last_arrival_to_the_last_end(self) -> None:
        spans = [(100, 900), (300, 800)]
        assert taken_ns(spans, "all_reduce", has_one_clock=True) == 600
        assert taken_ns(spans, "all_reduce", has_one_clock=False) == 500, "who came last was through soonest"
        assert taken_ns(spans, "broadcast", has_one_clock=False) == 800, "a root may be through before all others"

    def test_groups_inside_a_node_and_across(self) -> None:
        plan = Plan(backend="gloo", ops=(), groups=(2, 4), sizes=(), nodes=3, rounds=1, bound_s=1, pin=False, result="")
        assert plan.group_ranks(4) == [
            (0, 1),
            (0, 1, 2, 3),
            (0, 4),
            tuple(range(8)),
            (0, 4, 8),
            tuple(range(12)),
        ]
        assert replace(plan, nodes=1).group_ranks(4) == [(0, 1), (0, 1, 2, 3)]
        assert replace(plan, result="elsewhere").digest == plan.digest != replace(plan, rounds=2).digest
        assert replace(plan, at_once=("overlap",)).digest != plan.digest


class TestWhatIsSaidOfIt:
    def measurement(self, noise: float) -> Measurement:
        found = samples(TestWhatTheFormulaDescribes.TRUE, {"all_reduce": [inside(2)], SEND: [inside(2)]}, noise=noise)
        return Measurement(calibrated=fitted(found), rounds=9, taken_s=5.0, unsupported={"reduce": "no such thing"})

    def test_every_operation_and_the_worst(self) -> None:
        text = "\n".join(calibration_text.lines(self.measurement(0.01)))
        assert "node: latency " in text and "a send does not wait for its receiver up to: none" in text
        assert "all_reduce  formula, tree then ring" in text
        assert "not measured: reduce: no such thing" in text
        assert "busy with other work" not in text
        assert calibration_text.values(self.measurement(0.0))["compared"][0]["error"] == pytest.approx(0, abs=0.02)

    def test_what_it_takes_a_node_to_be(self) -> None:
        measured = self.measurement(0.0)
        ranks = (
            "ranks_per_node: 4, the most ranks that were measured on a node; change it in the file if a node has more"
        )
        links = "links between nodes were not measured: the file has those of one node for them (--nodes measures them)"
        for text in ("\n".join(calibration_text.lines(measured)), measured.text()):
            assert ranks in text and links in text
        values = calibration_text.values(measured)
        assert (values["ranks_per_node"], values["nodes"]) == (4, 1)

    def test_factors_with_their_residuals(self) -> None:
        cases = [
            FactorCase(
                kind="matmul", count=count, members=1, size_bytes=0, alone_ns=(100,) * 3, at_once_ns=(taken,) * 3
            )
            for count, taken in ((2, 110), (4, 190), (4, 210))
        ]
        plain = self.measurement(0.0)
        factors = {Factor.PROCESSORS: fit_factor(cases)}
        cluster = with_factors(plain.calibrated.cluster, factors)
        measured = replace(
            plain,
            calibrated=replace(plain.calibrated, cluster=cluster),
            factors=factors,
            not_measured={"links": "no second group"},
        )
        text = "\n".join(calibration_text.lines(measured))
        rows = [" ".join(line.split()) for line in text.splitlines()]
        assert "2 ranks that compute 1.1 0.0% 0.0% 0.0% 1" in rows
        assert "4 ranks that compute 2 5.0% 5.3% 0.0% 2" in rows
        assert "not measured: links: no second group" in text
        assert "# not measured: links: no second group" in measured.text()
        assert "contention: {processors: {2: 1.1, 4: 2}}" in measured.text()
        assert "    processors: {median: 4.8 %, largest: 5.3 %, cases: 3}" in measured.text()
        assert cluster_file.parse(measured.text()) == cluster
        assert calibration_text.values(measured)["factors"]["processors"]["by_count"] == {"2": 1.1, "4": 2.0}

    def test_what_was_measured_once_has_no_difference_between_measurements(self) -> None:
        case = FactorCase(kind="matmul", count=2, members=1, size_bytes=0, alone_ns=(100,), at_once_ns=(110,))
        measured = replace(self.measurement(0.0), factors={Factor.PROCESSORS: fit_factor([case])})
        rows = [" ".join(line.split()) for line in "\n".join(calibration_text.lines(measured)).splitlines()]
        assert "2 ranks that compute 1.1 0.0% 0.0% - 1" in rows

    def test_fewer_links_than_ranks_are_said_with_what_they_follow_from(self) -> None:
        measured = self.measurement(0.0)
        cluster = measured.calibrated.cluster
        shared = replace(cluster, tiers=(replace(cluster.tiers[0], node_rate=4 * 10**9),))
        other = replace(measured, calibrated=replace(measured.calibrated, cluster=shared))
        note = "node_bandwidth is from single groups with several ranks on a node; no two groups were measured at once"
        assert note in other.text() and note not in measured.text()
        assert ", of all links of a node 4 GB/s" in "\n".join(calibration_text.lines(other))
        assert "of a node" not in calibration_text.lines(measured)[0]

    def test_a_busy_machine_is_said_in_the_file_too(self) -> None:
        measured = self.measurement(0.6)
        assert "repeated measurements differ by" in measured.text()
        assert "busy with other work?" in "\n".join(calibration_text.lines(measured))
        assert cluster_file.parse(measured.text()) == measured.calibrated.cluster
