"""From times measured alone and at once to the factors of a cluster file: overlap, shared links, shared processors.

Each case is one kind of work in one size. A factor is the median over the cases of what it stands for, and at least 1:
doing two things at once makes neither faster. How far single cases lie from it goes into the file, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from prismdbg.simulate.cluster.cluster import ClusterModel, Factor, FactorFit
from prismdbg.simulate.cluster.slowdown import LARGEST_PPM, Slowdown
from prismdbg.simulate.quantities import MILLION, rounded_up_ppm

_STEP = MILLION // 1000  # of a factor: more digits would claim too much


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorCase:
    """Times in nanoseconds of one thing, alone and at once with others, one of each in a round.

    count: how many ranks, or groups, at once. members: ranks of a group.
    """

    kind: str
    count: int
    members: int
    size_bytes: int
    alone_ns: tuple[int, ...]
    at_once_ns: tuple[int, ...]

    @property
    def factor(self) -> float:
        return median(self.at_once_ns) / median(self.alone_ns)

    @property
    def again(self) -> float:
        """How far the factors of every other round and of the rest are apart, relatively."""
        if len(self.alone_ns) < 2:
            return 0.0
        one, other = (median(self.at_once_ns[at::2]) / median(self.alone_ns[at::2]) for at in (0, 1))
        return abs(one / other - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFactor:
    """`ppm`: by how many at once; of an overlap there is only one number, two. cases: with their relative errors."""

    ppm: Mapping[int, int]
    cases: tuple[tuple[FactorCase, float], ...]

    @property
    def fit(self) -> FactorFit:
        errors = [abs(error) for _, error in self.cases]
        return FactorFit(
            median_ppm=rounded_up_ppm(median(errors)), largest_ppm=rounded_up_ppm(max(errors)), cases=len(errors)
        )

    @property
    def again(self) -> float:
        return median(case.again for case, _ in self.cases)


def fit_factor(cases: Sequence[FactorCase]) -> FittedFactor:
    """Of one `Factor`; at least one case."""
    counts = sorted({case.count for case in cases})
    ppm = {count: _ppm(median(case.factor for case in cases if case.count == count)) for count in counts}
    return FittedFactor(ppm=ppm, cases=tuple((case, ppm[case.count] / MILLION / case.factor - 1) for case in cases))


def with_factors(cluster: ClusterModel, found: Mapping[Factor, FittedFactor]) -> ClusterModel:
    """`cluster` with the factors that were measured, and how far they are off in its calibration, if it has one."""
    overlaps = {name: fitted.ppm[2] for name, fitted in found.items() if 2 in fitted.ppm}
    tables = {name: Slowdown(tuple(fitted.ppm.items())) for name, fitted in found.items()}
    calibration = cluster.calibration
    if calibration is not None:
        calibration = replace(calibration, factors={name: fitted.fit for name, fitted in found.items()})
    return replace(
        cluster,
        compute_overlap_ppm=overlaps.get(Factor.COMPUTE_OVERLAP, MILLION),
        transfer_overlap_ppm=overlaps.get(Factor.COMMUNICATION_OVERLAP, MILLION),
        shared_links=tables.get(Factor.LINKS, Slowdown()),
        processors=tables.get(Factor.PROCESSORS, Slowdown()),
        calibration=calibration,
    )


def _ppm(factor: float) -> int:
    return min(max(round(factor * MILLION / _STEP) * _STEP, MILLION), LARGEST_PPM)
