"""From times alone and at once to factors, with what is said of how good they are."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from prismdbg.simulate.cluster.cluster import Calibration, ClusterModel, Factor, Tier
from prismdbg.simulate.cluster.factor_fit import FactorCase, fit_factor, with_factors
from prismdbg.simulate.cluster.slowdown import Slowdown

PLAIN = ClusterModel(tiers=(Tier(name="only", spans=0, latency_ns=0, rate=1),))


def case(alone_ns: Sequence[int], at_once_ns: Sequence[int], count: int = 2) -> FactorCase:
    return FactorCase(
        kind="matmul",
        count=count,
        members=2,
        size_bytes=8,
        alone_ns=tuple(alone_ns),
        at_once_ns=tuple(at_once_ns),
    )


def test_a_factor_is_the_median_of_its_cases() -> None:
    found = fit_factor([case([100], [120]), case([100], [150]), case([100], [200])])
    assert found.ppm == {2: 1_500_000}
    assert [error for _, error in found.cases] == pytest.approx([0.25, 0.0, -0.25])
    assert (found.fit.median_ppm, found.fit.largest_ppm, found.fit.cases) == (250_000, 250_000, 3)


def test_odd_rounds_decide_nothing() -> None:
    assert fit_factor([case([100, 100, 5000], [170, 9000, 170])]).ppm == {2: 1_700_000}


def test_it_comes_out_of_noise() -> None:
    draw = random.Random(1)
    noisy = [
        case(
            [round(10**6 * draw.lognormvariate(0, 0.1)) for _ in range(25)],
            [round(10**6 * true * draw.lognormvariate(0, 0.1)) for _ in range(25)],
            count,
        )
        for count, true in ((2, 1.0), (4, 2.0))
        for _ in range(4)
    ]
    found = fit_factor(noisy)
    assert [found.ppm[2], found.ppm[4]] == pytest.approx([10**6, 2 * 10**6], rel=0.05)
    assert 0 < found.fit.largest_ppm < 100_000
    assert found.again < 0.2


def test_nothing_becomes_faster() -> None:
    found = fit_factor([case([100], [80])])
    assert found.ppm == {2: 1_000_000}
    assert found.fit.largest_ppm == 250_000, "and the difference is not hidden"


def test_halves_that_disagree() -> None:
    assert case([100] * 4, [100, 150, 100, 150]).again == pytest.approx(1 / 3)
    assert case([100], [150]).again == 0


def test_each_goes_to_its_place_in_the_cluster() -> None:
    fitted = {
        Factor.COMPUTE_OVERLAP: fit_factor([case([100], [125])]),
        Factor.COMMUNICATION_OVERLAP: fit_factor([case([100], [150])]),
        Factor.LINKS: fit_factor([case([100], [175]), case([100], [300], count=4)]),
        Factor.PROCESSORS: fit_factor([case([100], [200], count=4)]),
    }
    found = with_factors(PLAIN, fitted)
    assert (found.compute_overlap_ppm, found.transfer_overlap_ppm) == (1_250_000, 1_500_000)
    assert found.shared_links == Slowdown(((2, 1_750_000), (4, 3_000_000)))
    assert found.processors == Slowdown(((4, 2_000_000),))
    calibration = Calibration(machine="here", backend="gloo", date="", fits={})
    told = with_factors(ClusterModel(tiers=PLAIN.tiers, calibration=calibration), fitted).calibration
    assert told is not None and {name: fit.cases for name, fit in told.factors.items()} == {
        Factor.COMPUTE_OVERLAP: 1,
        Factor.COMMUNICATION_OVERLAP: 1,
        Factor.LINKS: 2,
        Factor.PROCESSORS: 1,
    }


def test_what_was_not_measured_has_no_factor() -> None:
    assert with_factors(PLAIN, {}) == PLAIN
