"""From many measured times of collectives to a cluster model: a table for each operation and layout, and the formula.

A table has as few points as describe the measurements: so many that more of them come no closer to measurements that
they were not made of. Pure: where the times come from is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from prismdbg.errors import UsageError
from prismdbg.simulate.cluster.calibration import Sample
from prismdbg.simulate.cluster.cluster import Calibration, ClusterModel, Fit, Tier
from prismdbg.simulate.cluster.curve import Curve
from prismdbg.simulate.cluster.tier_fit import Point, fit_formula, point_ns
from prismdbg.simulate.cluster.transfer import Geometry
from prismdbg.simulate.quantities import rounded_up_ppm, say_percent

MOST_POINTS = 33
_POINTS_OF_A_FILE = 8_000  # of some 27 bytes, which a cluster file can hold
_FITTED_POINTS, _FITTED_OF_A_TABLE = 600, 9  # for the formula: it has a few figures to find
_CLOSER = 0.98  # more points must lessen the errors to so much
_ROUNDS = 20
_CLOSE = 0.001  # relative errors below it weigh alike
INSIDE, BETWEEN = "node", "network"

Floats = NDArray[np.float64]
Points = tuple[list[int], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """sizes: how many were measured. errors: relative and signed, of each measurement by a table of every other one.
    formula_errors: of each, by the formula.
    """

    op: str
    where: Geometry
    curve: Curve
    sizes: int
    errors: tuple[float, ...]
    formula_errors: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tabulated:
    cluster: ClusterModel
    tables: tuple[Table, ...]

    @property
    def notes(self) -> list[str]:
        links = "links between nodes were not measured: the file has those of one node for them"
        ranks = f"ranks_per_node: {self.cluster.ranks_per_node}, the most ranks that were measured on a node"
        return [
            "errors: each measured time against a table of every other one.",
            "Layouts that were not measured follow from the nearest table, by the ratio of the formula.",
            "The formula is fitted to the same times:",
            *(
                f"formula, {op}: median {say_percent(fit.median_ppm)}, largest {say_percent(fit.largest_ppm)}"
                for op, fit in _fits(self.tables, lambda table: table.formula_errors).items()
            ),
            f"{ranks}; change it in the file if a node has more",
            *([links] if max(table.where.nodes for table in self.tables) == 1 else []),
        ]


def tabulated(samples: Sequence[Sample], origin: Calibration) -> Tabulated:
    """origin: machine, backend and date; the rest is filled in here."""
    model = _without_figures(samples)
    last = len(model.tiers) - 1
    layouts: dict[tuple[str, Geometry], dict[int, float]] = {}
    for sample in sorted(samples, key=lambda s: (s.op, s.where.nodes, s.where.members, s.size_bytes)):
        where = replace(sample.where, tier=min(sample.where.tier, last))
        layouts.setdefault((sample.op, where), {})[sample.size_bytes] = sample.time_ns
    most = max(min(_POINTS_OF_A_FILE // len(layouts), MOST_POINTS), 2)
    curves = {at: _curve(at[1], times_ns, most) for at, times_ns in layouts.items()}
    fitted = fit_formula(model, list(_for_formula(curves)))
    tables = tuple(
        Table(
            op=op,
            where=where,
            curve=curves[op, where],
            sizes=len(times_ns),
            errors=tuple(_errors_of_halves(*_arrays(times_ns), most)),
            formula_errors=tuple(
                point_ns(fitted, Point(op, where, size, ns)) / ns - 1 for size, ns in times_ns.items()
            ),
        )
        for (op, where), times_ns in layouts.items()
    )
    about = origin.of([table.where for table in tables], _fits(tables, lambda table: table.errors))
    return Tabulated(
        cluster=replace(fitted, tiers=_with_tables(fitted.tiers, tables), calibration=about), tables=tables
    )


def thinned(sizes: Floats, times_ns: Floats, most: int) -> Points:
    """Sizes ascend. All of them as they were measured if they are few; else points of lines through the measurements,
    between which `Curve` interpolates, too.
    """
    if len(sizes) <= most:
        return [round(size) for size in sizes.tolist()], [max(round(ns), 1) for ns in times_ns.tolist()]
    counts = [count for shift in range(6) if (count := (1 << shift) + 1) <= most]
    errors = {count: _mean_error(sizes, times_ns, count) for count in counts}
    enough = next(count for count in counts if errors[count] * _CLOSER <= min(errors[c] for c in counts if c >= count))
    return _lines(sizes, times_ns, enough)


def _without_figures(samples: Iterable[Sample]) -> ClusterModel:
    places = {(sample.where.nodes, sample.where.local) for sample in samples}
    ranks_per_node = max(local for _, local in places)
    is_inside, is_between = (any((nodes > 1) == leaves for nodes, _ in places) for leaves in (False, True))
    if not is_inside and ranks_per_node > 1:
        raise UsageError(
            f"no times of groups inside a node of {ranks_per_node} ranks, so the rate of its links is unknown",
            hint="add files with times at nodes 1",
        )
    names = [*([(INSIDE, ranks_per_node * is_between)] if is_inside else []), *([(BETWEEN, 0)] if is_between else [])]
    tiers = tuple(Tier(name=name, spans=spans, latency_ns=0, rate=0) for name, spans in names)
    return ClusterModel(tiers=tiers, ranks_per_node=ranks_per_node, is_measured=True)


def _with_tables(tiers: Sequence[Tier], tables: Sequence[Table]) -> tuple[Tier, ...]:
    found: list[dict[str, tuple[Curve, ...]]] = [{} for _ in tiers]
    for table in tables:
        of_tier = found[table.where.tier]
        of_tier[table.op] = (*of_tier.get(table.op, ()), table.curve)
    return tuple(replace(tier, measured=measured) for tier, measured in zip(tiers, found, strict=True))


def _curve(where: Geometry, times_ns: Mapping[int, float], most: int) -> Curve:
    sizes, times = thinned(*_arrays(times_ns), most)
    return Curve(members=where.members, nodes=where.nodes, sizes_bytes=tuple(sizes), times_ns=tuple(times))


def _arrays(times_ns: Mapping[int, float]) -> tuple[Floats, Floats]:
    return np.array(list(times_ns), dtype=np.float64), np.array(list(times_ns.values()), dtype=np.float64)


def _for_formula(curves: Mapping[tuple[str, Geometry], Curve]) -> Iterable[Point]:
    """Of each table alike, however many times were measured for it."""
    most = max(min(_FITTED_POINTS // len(curves), _FITTED_OF_A_TABLE), 1)
    for (op, where), curve in curves.items():
        for i in np.linspace(0, len(curve.sizes_bytes) - 1, min(most, len(curve.sizes_bytes)), dtype=int).tolist():
            yield Point(op, where, curve.sizes_bytes[i], curve.times_ns[i])


def _fits(tables: Sequence[Table], errors: Callable[[Table], Sequence[float]]) -> dict[str, Fit]:
    """Of the operations of which errors are known: that takes three sizes of a layout."""
    ops = dict.fromkeys(table.op for table in tables if errors(table))
    return {op: _fit([table for table in tables if table.op == op], errors) for op in ops}


def _fit(tables: Sequence[Table], errors: Callable[[Table], Sequence[float]]) -> Fit:
    told = [abs(error) for table in tables for error in errors(table)]
    members = [table.where.members for table in tables]
    sizes = [size for table in tables for size in table.curve.sizes_bytes]
    return Fit(
        median_ppm=rounded_up_ppm(median(told)),
        largest_ppm=rounded_up_ppm(max(told)),
        groups=(min(members), max(members)),
        sizes_bytes=(min(sizes), max(sizes)),
    )


def _errors_of_halves(sizes: Floats, times_ns: Floats, most: int) -> list[float]:
    """A table of every other measurement asked for the rest, as far as they lie between its ends."""
    return [
        error
        for mine, others in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2)))
        if len(sizes[mine])
        for error in _errors(thinned(sizes[mine], times_ns[mine], most), sizes[others], times_ns[others])
    ]


def _mean_error(sizes: Floats, times_ns: Floats, count: int) -> float:
    points = _lines(sizes[::2], times_ns[::2], count)
    return float(np.mean(np.abs(_errors(points, sizes[1::2], times_ns[1::2]))))


def _errors(points: Points, sizes: Floats, times_ns: Floats) -> list[float]:
    known, times = points
    within = (sizes >= known[0]) & (sizes <= known[-1])
    found: list[float] = (np.interp(sizes[within], known, times) / times_ns[within] - 1).tolist()
    return found


def _lines(sizes: Floats, times_ns: Floats, count: int) -> Points:
    """With their ends at measured sizes, as evenly spread in the logarithm as these are: least absolute relative
    errors, by least squares with weights, so that a few odd times decide nothing.
    """
    ends = _spread(sizes, count)
    hats = np.stack([np.interp(sizes, sizes[ends], row) for row in np.eye(len(ends))], axis=1)
    least, largest = _bounds(times_ns, ends)
    level, weights, found = times_ns, np.ones(len(sizes)), times_ns[ends]
    for _ in range(_ROUNDS):
        rows = hats * (weights / level)[:, None]
        found = np.clip(np.linalg.lstsq(rows, times_ns / level * weights, rcond=None)[0], least, largest)
        level = hats @ found
        weights = 1 / np.sqrt(np.maximum(np.abs(times_ns / level - 1), _CLOSE))
    return [round(size) for size in sizes[ends].tolist()], [_four_digits(ns) for ns in found.tolist()]


def _spread(sizes: Floats, count: int) -> NDArray[np.intp]:
    wanted = np.geomspace(max(sizes[0], 1), sizes[-1], count)
    after = np.clip(np.searchsorted(sizes, wanted), 1, len(sizes) - 1)
    nearest = after - (wanted - sizes[after - 1] < sizes[after] - wanted)
    return np.unique(np.concatenate([[0], nearest, [len(sizes) - 1]]))


def _bounds(times_ns: Floats, ends: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """A point lies among the times beside it: so none falls to zero."""
    beside = [times_ns[a : b + 1] for a, b in zip([0, *ends[:-1]], [*ends[1:], ends[-1]], strict=True)]
    return np.array([part.min() for part in beside]), np.array([part.max() for part in beside])


def _four_digits(value: float) -> int:
    """More would claim too much."""
    return max(int(float(f"{value:.3e}")), 1)
