"""From measured collectives to a cluster model: latency and rate of each tier, algorithms by operation and size.

Where the formula comes no closer than `FORMULA_LIMIT` to what was measured of an operation, its times become a table
in the model: on the measured points there is no better one. Pure: how the times were taken is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from prismdbg.errors import UsageError
from prismdbg.simulate.cluster.cluster import Calibration, ClusterModel, Fit, Tier
from prismdbg.simulate.cluster.curve import Curve
from prismdbg.simulate.cluster.tier_fit import Point, fit_formula
from prismdbg.simulate.cluster.transfer import SEND, Geometry, collective_ns, point_to_point_ns
from prismdbg.simulate.quantities import rounded_up_ppm

FORMULA_LIMIT = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One operation by one group, with one size, as often as it was measured. tier: the place of the group's links."""

    op: str
    where: Geometry
    size_bytes: int
    times_ns: tuple[int, ...]

    @property
    def time_ns(self) -> float:
        return median(self.times_ns)

    @property
    def again(self) -> float:
        """How far the medians of every other measurement and of the rest are apart, relatively."""
        if len(self.times_ns) < 2:
            return 0.0
        one, other = median(self.times_ns[::2]), median(self.times_ns[1::2])
        return abs(one / other - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """`model_ns`: of the file that is written. `unseen_ns`: of a model that did not know this sample, where it matters
    and can be said: a table without it. is_repeated: a table repeats it, and nothing is known without it.
    """

    sample: Sample
    model_ns: int
    unseen_ns: float | None
    is_repeated: bool

    @property
    def error(self) -> float:
        """Relative and signed; of what the model says where it has not seen."""
        known = self.model_ns if self.unseen_ns is None else self.unseen_ns
        return known / self.sample.time_ns - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    cluster: ClusterModel
    compared: tuple[Compared, ...]


def calibrate_model(
    samples: Sequence[Sample],
    tiers: Sequence[tuple[str, int]],
    ranks_per_node: int,
    *,
    origin: Calibration,
    eager_bytes: int = 0,
) -> Calibrated:
    """`tiers`: name and span, the nearest first. origin: machine, backend and date; the rest is filled in here."""
    model = ClusterModel(
        tiers=tuple(Tier(name=name, spans=spans, latency_ns=0, rate=0) for name, spans in tiers),
        ranks_per_node=ranks_per_node,
        eager_bytes=eager_bytes,
        is_measured=True,
    )
    for number, tier in enumerate(model.tiers):
        if not any(sample.where.tier == number for sample in samples):
            raise UsageError(f"nothing was measured over {tier.name}", hint="measure groups that use these links")
    model = fit_formula(model, [Point(s.op, s.where, s.size_bytes, s.time_ns) for s in samples])
    model = _with_tables(model, samples)
    compared = tuple(_compare(model, sample) for sample in samples)
    ops = dict.fromkeys(sample.op for sample in samples)
    fits = {op: _fit([c for c in compared if c.sample.op == op]) for op in ops}
    about = origin.of([sample.where for sample in samples], fits)
    return Calibrated(cluster=replace(model, calibration=about), compared=compared)


def model_ns(model: ClusterModel, sample: Sample) -> int:
    if sample.op == SEND:
        return point_to_point_ns(model, sample.size_bytes, sample.where.tier, sample.where.sharing)
    return collective_ns(model, sample.op, sample.size_bytes, sample.where)


def _with_tables(model: ClusterModel, samples: Sequence[Sample]) -> ClusterModel:
    tiers = []
    for number, tier in enumerate(model.tiers):
        here = [sample for sample in samples if sample.where.tier == number]
        measured = {}
        for op in dict.fromkeys(sample.op for sample in here):
            chosen = [sample for sample in here if sample.op == op]
            if max(abs(model_ns(model, s) / s.time_ns - 1) for s in chosen) > FORMULA_LIMIT:
                measured[op] = _curves(chosen)
        tiers.append(replace(tier, measured=measured))
    return replace(model, tiers=tuple(tiers))


def _curves(samples: Iterable[Sample]) -> tuple[Curve, ...]:
    by_group: dict[tuple[int, int], dict[int, int]] = {}
    for sample in sorted(samples, key=lambda s: (s.where.members, s.where.nodes, s.size_bytes)):
        points = by_group.setdefault((sample.where.members, sample.where.nodes), {})
        points[sample.size_bytes] = max(round(sample.time_ns), 1)
    return tuple(
        Curve(members=members, nodes=nodes, sizes_bytes=tuple(points), times_ns=tuple(points.values()))
        for (members, nodes), points in by_group.items()
    )


def _compare(model: ClusterModel, sample: Sample) -> Compared:
    unseen_ns, has_table = _unseen_ns(model, sample), sample.op in model.tiers[sample.where.tier].measured
    return Compared(
        sample=sample,
        model_ns=model_ns(model, sample),
        unseen_ns=unseen_ns,
        is_repeated=has_table and unseen_ns is None,
    )


def _unseen_ns(model: ClusterModel, sample: Sample) -> float | None:
    """From the sizes below and above, if the operation has a table and these are in it."""
    curves = model.tiers[sample.where.tier].measured.get(sample.op, ())
    for curve in curves:
        if not curve.is_of(sample.where) or sample.size_bytes not in curve.sizes_bytes[1:-1]:
            continue
        kept = [(s, t) for s, t in zip(curve.sizes_bytes, curve.times_ns, strict=True) if s != sample.size_bytes]
        less = replace(curve, sizes_bytes=tuple(s for s, _ in kept), times_ns=tuple(t for _, t in kept))
        return less.time_ns(sample.size_bytes)
    return None


def _fit(compared: Sequence[Compared]) -> Fit:
    """Of a table only where something can be said of it: between its ends."""
    told = [abs(c.error) for c in compared if not c.is_repeated] or [abs(c.error) for c in compared]
    members = [c.sample.where.members for c in compared]
    sizes = [c.sample.size_bytes for c in compared]
    return Fit(
        median_ppm=rounded_up_ppm(median(told)),
        largest_ppm=rounded_up_ppm(max(told)),
        groups=(min(members), max(members)),
        sizes_bytes=(min(sizes), max(sizes)),
    )
