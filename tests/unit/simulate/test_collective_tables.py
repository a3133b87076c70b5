"""Many measured times of collectives as a table for each layout, and the formula for the others."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import mean, median

import numpy as np
import pytest

from prismdbg.errors import UsageError
from prismdbg.simulate.cluster import cluster_file, cluster_text
from prismdbg.simulate.cluster.calibration import Sample
from prismdbg.simulate.cluster.checked_yaml import MAX_BYTES
from prismdbg.simulate.cluster.cluster import Calibration
from prismdbg.simulate.cluster.collective_tables import MOST_POINTS, Tabulated, tabulated, thinned
from prismdbg.simulate.cluster.transfer import (
    SEND,
    Geometry,
    collective_ns,
    has_unknown_links,
    is_carried,
    point_to_point_ns,
)

ORIGIN = Calibration(machine="files", backend="files", date="2026-01-01", fits={})


def at(nodes: int, local: int) -> Geometry:
    across = int(nodes > 1)
    return Geometry(members=nodes * local, tier=across, nodes=nodes, local=local, sharing=across)


def samples(
    op: str, where: Geometry, time_ns: Callable[[int], float], sizes: range, noise: float = 0.0
) -> list[Sample]:
    draw = random.Random(1)
    return [
        Sample(op=op, where=where, size_bytes=s, times_ns=(round(time_ns(s) * draw.lognormvariate(0, noise)),))
        for s in sizes
    ]


def line(s: int) -> float:
    return 20_000 + s / 10


def bend(s: int) -> float:
    """Another protocol from 400 kB on."""
    return 20_000 + s / 10 if s < 400_000 else 50_000 + s / 8


def table(found: list[Sample]) -> Tabulated:
    return tabulated(found, ORIGIN)


class TestThinned:
    SIZES = range(1_000, 2_000_000, 1_000)

    def of(self, time_ns: Callable[[int], float], noise: float) -> tuple[list[int], list[int]]:
        found = samples("all_reduce", at(1, 2), time_ns, self.SIZES, noise)
        sizes, times = (
            np.array([value(s) for s in found], dtype=float) for value in (lambda s: s.size_bytes, lambda s: s.time_ns)
        )
        return thinned(sizes, times, MOST_POINTS)

    def test_few_sizes_are_all_kept_as_they_were_measured(self) -> None:
        sizes, times = np.array([1.0, 2.0, 4.0, 8.0]), np.array([123_456.0, 7, 9, 1])
        assert thinned(sizes, times, MOST_POINTS) == ([1, 2, 4, 8], [123_456, 7, 9, 1])

    def test_a_line_needs_its_ends(self) -> None:
        sizes, times = self.of(line, 0.02)
        assert (sizes[0], sizes[-1]) == (1_000, 1_999_000) and len(sizes) <= 5
        assert times == pytest.approx([line(s) for s in sizes], rel=0.01)

    def test_a_bend_gets_more_points_spread_evenly_in_the_logarithm(self) -> None:
        sizes, times = self.of(bend, 0.02)
        assert 5 < len(sizes) <= MOST_POINTS
        steps = [after / before for before, after in zip(sizes[-8:], sizes[-7:], strict=False)]
        assert max(steps) / min(steps) < 1.1
        between = [abs(np.interp(s, sizes, times) / bend(s) - 1) for s in self.SIZES]
        assert median(between) < 0.005 and mean(between) < 0.01, "well within a scatter of 2 %"

    def test_odd_times_decide_nothing(self) -> None:
        found = samples("all_reduce", at(1, 2), line, self.SIZES, 0.01)
        sizes = np.array([s.size_bytes for s in found], dtype=float)
        odd = np.array([s.time_ns * (20 if i % 11 == 0 else 1) for i, s in enumerate(found)])
        kept, times = thinned(sizes, odd, MOST_POINTS)
        assert times == pytest.approx([line(s) for s in kept], rel=0.03)


class TestTables:
    FOUND = [
        *samples("all_reduce", at(1, 4), line, range(10_000, 1_000_000, 5_000), 0.01),
        *samples("all_reduce", at(2, 4), lambda s: 3 * line(s), range(10_000, 1_000_000, 5_000), 0.01),
        *samples("all_reduce", at(8, 1), lambda s: 9 * line(s), range(10_000, 1_000_000, 5_000), 0.01),
        *samples(SEND, at(1, 2), lambda s: line(s) / 2, range(10_000, 1_000_000, 50_000)),
        *samples(SEND, at(2, 1), line, range(10_000, 1_000_000, 50_000)),
    ]

    def test_each_layout_has_one_and_simulations_use_it(self) -> None:
        cluster = table(self.FOUND).cluster
        assert cluster.is_measured and cluster.ranks_per_node == 4
        assert [(t.name, t.spans) for t in cluster.tiers] == [("node", 4), ("network", 0)]
        for where, factor in ((at(1, 4), 1), (at(2, 4), 3), (at(8, 1), 9)):
            assert collective_ns(cluster, "all_reduce", 333_333, where) == pytest.approx(
                factor * line(333_333), rel=0.01
            )
            assert not is_carried(cluster, "all_reduce", 10_000, where), "the ends are those that were measured"
            assert not is_carried(cluster, "all_reduce", 995_000, where)
        assert is_carried(cluster, "all_reduce", 333_333, at(4, 1))
        assert point_to_point_ns(cluster, 333_333, 0, 0) == pytest.approx(line(333_333) / 2, rel=0.01)
        assert point_to_point_ns(cluster, 333_333, 1, 1) == pytest.approx(line(333_333), rel=0.01)

    def test_the_file_says_how_far_what_was_left_out_is_from_it(self) -> None:
        found = table(self.FOUND)
        about = found.cluster.calibration
        assert about is not None and about.nodes == 8
        fit = about.fits["all_reduce"]
        assert 0.003 < fit.median_ppm / 1e6 < 0.02 and fit.largest_ppm < 60_000
        assert (fit.groups, fit.sizes_bytes) == ((4, 8), (10_000, 995_000))
        assert about.fits[SEND].largest_ppm < 2_000
        ring = next(t for t in found.tables if (t.op, t.where) == ("all_reduce", at(8, 1)))
        assert ring.sizes == 198 and len(ring.errors) > 190
        assert mean(map(abs, ring.errors)) == pytest.approx(0.008, abs=0.004), "a scatter of 1 %"
        text = cluster_text.write(found.cluster, found.notes)
        assert cluster_file.parse(text) == found.cluster
        assert "# formula, all_reduce: median " in text

    def test_the_formula_is_fitted_for_what_was_not_measured(self) -> None:
        def ring(members: int, rate: float) -> Callable[[int], float]:
            return lambda s: 2 * (members - 1) * (5_000 + s / members / rate)

        sizes = range(100_000, 10_000_000, 10_000)
        found = [
            *samples("all_reduce", at(1, 4), ring(4, 10), sizes),
            *samples("all_reduce", at(2, 1), ring(2, 1), sizes),
            *samples("all_reduce", at(4, 1), ring(4, 1), sizes),
        ]
        result = table(found)
        assert result.cluster.tiers[1].rate == pytest.approx(10**9, rel=0.02)
        assert result.cluster.tiers[0].rate == pytest.approx(10**10, rel=0.02)
        assert collective_ns(result.cluster, "all_reduce", 5_000_000, at(8, 1)) == pytest.approx(
            ring(8, 1)(5_000_000), rel=0.02
        )
        assert all(abs(error) < 0.02 for each in result.tables for error in each.formula_errors)

    @pytest.mark.parametrize(("more", "is_unknown"), [([], True), ([(2, 2)], False)])
    def test_links_of_a_node_are_known_if_several_of_its_ranks_were_measured_across_nodes(
        self, more: list[tuple[int, int]], is_unknown: bool
    ) -> None:
        layouts = [(1, 4), (2, 1), (4, 1), *more]
        found = [s for where in layouts for s in samples("all_reduce", at(*where), line, range(10_000, 90_000, 10_000))]
        one = table(found)
        for cluster in (one.cluster, cluster_file.parse(cluster_text.write(one.cluster))):
            assert has_unknown_links(cluster, "reduce_scatter", at(2, 4)) == is_unknown
            assert not has_unknown_links(cluster, "reduce_scatter", at(2, 1))

    def test_nodes_of_one_rank_need_no_links_inside(self) -> None:
        cluster = table(samples("all_reduce", at(2, 1), line, range(1_000, 9_000, 1_000))).cluster
        assert [(t.name, t.spans) for t in cluster.tiers] == [("network", 0)] and cluster.ranks_per_node == 1
        assert not is_carried(cluster, "all_reduce", 2_000, Geometry(members=2, tier=0, nodes=2, local=1, sharing=1))

    def test_of_two_sizes_no_error_is_known(self) -> None:
        found = table(samples("all_reduce", at(1, 2), line, range(1_000, 3_000, 1_000)))
        assert found.cluster.calibration is not None and not found.cluster.calibration.fits
        assert collective_ns(found.cluster, "all_reduce", 1_500, at(1, 2)) == line(1_500)

    def test_one_node_alone_is_said(self) -> None:
        found = table(samples("all_reduce", at(1, 4), line, range(1_000, 9_000, 1_000)))
        assert [(t.name, t.spans) for t in found.cluster.tiers] == [("node", 0)]
        assert any("links between nodes were not measured" in note for note in found.notes)

    def test_links_inside_a_node_that_nobody_measured_are_an_error(self) -> None:
        with pytest.raises(UsageError, match="no times of groups inside a node"):
            table(samples("all_reduce", at(2, 4), line, range(1_000, 9_000, 1_000)))

    def test_many_layouts_still_fit_into_a_cluster_file(self) -> None:
        layouts = [(1, 2), *((nodes, 1) for nodes in range(2, 262))]
        found = [
            s for where in layouts for s in samples("all_reduce", at(*where), line, range(10_000, 2_000_000, 40_001))
        ]
        text = cluster_text.write((one := table(found)).cluster, one.notes)
        assert len(text) < MAX_BYTES and cluster_file.parse(text) == one.cluster
        assert len(one.tables) == len(layouts)
