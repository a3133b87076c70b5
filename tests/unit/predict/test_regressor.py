"""Times of shapes that were not sampled, on a fake machine: rates, and sizes that it likes."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prismdbg.errors import FacilityError, UsageError
from prismdbg.predict.fit.regressor import Regressor
from prismdbg.predict.operators.work import Floats, Work, lookup, matmul, memory_bound

SIZES = (256, 384, 512, 768, 1024, 1536, 2048, 4096)


def fake_times(work: Work) -> Floats:
    """100 TFLOP/s or 1 TB/s, 5 us a call, and slower by a half where k is no multiple of 256."""
    slower = np.where(work.sizes["k"] % 256 == 0, 1.0, 1.5)
    return np.maximum(work.flops / 1e14, work.moved_bytes / 1e12) * 1e9 * slower + 5_000


@pytest.fixture(scope="module")
def grid() -> Work:
    m, n, k = (axis.ravel() for axis in np.meshgrid(SIZES, SIZES, SIZES))
    return matmul("mm", m=m.astype(float), n=n.astype(float), k=k.astype(float))


def some(work: Work, rows: np.ndarray[Any, Any]) -> Work:
    return matmul("mm", **{name: size[rows] for name, size in work.sizes.items()})


@pytest.fixture(scope="module")
def regressor(grid: Work) -> Regressor:
    train = some(grid, np.arange(len(grid)) % 5 != 0)
    return Regressor.of(train, fake_times(train))


def test_shapes_between_the_samples_are_near(grid: Work, regressor: Regressor) -> None:
    asked = some(grid, np.arange(len(grid)) % 5 == 0)
    error = np.abs(regressor.time_ns(asked) / fake_times(asked) - 1)
    assert np.median(error) < 0.02 and error.mean() < 0.04


def test_beyond_the_samples_the_sum_goes_on(regressor: Regressor) -> None:
    """Eight times the arithmetic: a forest alone would say the time of the largest sample."""
    asked = matmul("mm", m=np.array([8192.0]), n=np.array([8192.0]), k=np.array([8192.0]))
    assert regressor.time_ns(asked)[0] == pytest.approx(fake_times(asked)[0], rel=0.1)


@pytest.mark.parametrize(
    ("m", "n", "k", "said"),
    [
        (600, 700, 800, ""),
        (4096, 4096, 4096, ""),
        (8192, 512, 512, "m=8192 (sampled: 256 to 4096)"),
        (512, 512, 64, "k=64 (sampled: 256 to 4096)"),
    ],
)
def test_what_is_outside_the_samples_is_named(regressor: Regressor, m: int, n: int, k: int, said: str) -> None:
    asked = matmul("mm", m=np.array([float(m)]), n=np.array([float(n)]), k=np.array([float(k)]))
    assert regressor.hull.outside(asked) == [said]


def test_a_combination_that_no_sample_has_is_outside() -> None:
    """Sampled along the diagonal alone: each size is within its range, the three together are not."""
    side = np.array([float(size) for size in SIZES])
    diagonal = matmul("mm", m=side, n=side, k=side)
    regressor = Regressor.of(diagonal, fake_times(diagonal))
    inside, outside = regressor.hull.outside(
        matmul("mm", m=np.array([512.0, 256.0]), n=np.array([512.0, 4096.0]), k=np.array([512.0, 256.0]))
    )
    assert not inside and "combination" in outside


def lookups(vocabulary: float) -> Work:
    tokens, width = (axis.ravel() for axis in np.meshgrid([1024.0, 4096.0], [512.0, 2048.0, 8192.0]))
    return lookup(tokens=tokens, width=width, mp=np.ones(6), vocabulary=vocabulary * np.ones(6))


def test_another_vocabulary_is_outside_the_samples() -> None:
    """It is none of a lookup's sizes: all samples have the same."""
    sampled = Regressor.of(lookups(50_304), lookups(50_304).moved_bytes)
    assert not any(sampled.hull.outside(lookups(51_000)))
    assert set(sampled.hull.outside(lookups(128_256))) == {"vocabulary=128256 (sampled: 50304 to 50304)"}


def test_another_vocabulary_is_named_also_if_the_width_is_outside() -> None:
    sampled = Regressor.of(lookups(50_304), np.linspace(1, 6, 6))
    asked = lookups(256_000)
    wide = replace(asked, sizes={**asked.sizes, "width": 100 * asked.sizes["width"]})
    assert all("vocabulary=256000" in said for said in sampled.hull.outside(wide))


def test_an_optimizer_of_more_parameters_than_were_sampled_is_outside() -> None:
    """Experts: as many layers of that width have more."""
    sizes = {"dim": np.array([512.0, 1024.0, 512.0, 1024.0]), "encoders": np.array([1.0, 1.0, 4.0, 4.0])}
    work = memory_bound("middleStage_optimizer", sizes, items=12 * sizes["dim"] ** 2 * sizes["encoders"], ways=14)
    hull = Regressor.of(work, work.moved_bytes).hull
    assert not any(hull.outside(work))
    assert "moved_bytes=" in hull.outside(replace(work, moved_bytes=8 * work.moved_bytes))[3]


def test_the_same_samples_give_the_same_times(grid: Work, regressor: Regressor) -> None:
    train = some(grid, np.arange(len(grid)) % 5 != 0)
    assert np.array_equal(Regressor.of(train, fake_times(train)).time_ns(grid), regressor.time_ns(grid))


def test_too_few_samples_are_an_error(grid: Work) -> None:
    few = some(grid, np.arange(3))
    with pytest.raises(UsageError, match="operator mm has 3 samples"):
        Regressor.of(few, fake_times(few))


def test_without_scikit_learn_the_extra_is_named(grid: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(FacilityError) as caught:
        Regressor.of(grid, fake_times(grid))
    assert "prismdbg[predict]" in caught.value.hint
