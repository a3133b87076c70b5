"""Sketches of values: how far two values are from each other, without the values."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from prismdbg.model.sketch import Sketch, relative_difference
from prismdbg.rank.c10d import sketches

NUMBERS = torch.Generator().manual_seed(5)


def drawn(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=NUMBERS, dtype=torch.float64)


def of(*tensors: torch.Tensor) -> Sketch:
    found = sketches.of(tensors)
    assert found is not None
    return found


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return relative_difference(of(one), of(other))


@pytest.mark.parametrize("size", [700, 600_000])
def test_the_estimate_is_right_in_the_mean(size: int) -> None:
    """As the theory has it: of the squares, for any difference."""
    ratios = []
    for _ in range(200 if size < 1000 else 20):
        x, change = drawn(size), 1e-3 * drawn(size)
        ratios.append(apart(x, x + change) / float(change.norm() / x.norm()))
    mean = sum(ratio**2 for ratio in ratios) / len(ratios)
    assert 0.5 < mean < 1.7 and min(ratios) > 0.05 and max(ratios) < 3.5


@pytest.mark.parametrize(
    "change",
    [lambda x: x.roll(1), lambda x: x.roll(512), lambda x: x.roll(512 * 4096), lambda x: x.flip(0), torch.neg],
    ids=["next element", "next block", "next block of blocks", "order", "sign"],
)
def test_the_same_elements_elsewhere_are_another_value(change: object) -> None:
    x = torch.zeros(512 * 4096 * 2).bernoulli_(0.3, generator=NUMBERS)
    assert apart(x, change(x)) > 0.1  # type: ignore[operator]


def test_one_element_counts_exactly() -> None:
    x = drawn(1000)
    y = x.clone()
    y[777] += 0.5
    assert apart(x, y) == pytest.approx(0.5 / float(x.norm()))


def test_tensors_are_told_apart_from_their_order() -> None:
    x, y = drawn(600), drawn(600)
    assert relative_difference(of(x, y), of(y, x)) > 0.1
    assert relative_difference(of(x, y), of(x, y)) == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_count_by_number_and_place(value: float) -> None:
    x = drawn(1000)
    one, other = x.clone(), x.clone()
    one[3], other[4] = value, value
    assert of(one).nonfinite == 1
    assert apart(one, one) == 0
    assert apart(x, one) == math.inf
    assert 0 < apart(one, other) < math.inf


def test_what_holds_other_numbers_has_no_sketch() -> None:
    assert sketches.of([]) is None
    assert sketches.of([torch.arange(4)]) is None
    assert sketches.of([drawn(3), torch.zeros(1, dtype=torch.bool)]) is None
    assert sketches.of([torch.zeros(3).to(torch.float8_e4m3fn)]) is None


def test_where_nothing_can_be_said_the_difference_is_infinite() -> None:
    huge = torch.full((4,), 1e200, dtype=torch.float64)
    assert of(huge).squares == math.inf
    assert apart(huge, huge) == math.inf
    assert apart(torch.zeros(4), torch.ones(4)) == math.inf
    assert apart(torch.zeros(4), torch.zeros(4)) == 0
    spoiled = replace(of(drawn(4)), projections=(math.nan,) * 4)
    assert relative_difference(spoiled, spoiled) == math.inf


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e5m2, torch.complex64], ids=str)
def test_small_types_are_read_exactly(dtype: torch.dtype) -> None:
    x = (drawn(100) * 10).to(dtype)
    exact = torch.view_as_real(x) if dtype.is_complex else x
    assert of(x) == of(exact.to(torch.float64))


def test_a_strided_tensor_is_its_copy() -> None:
    x = drawn(30, 40)
    assert of(x.t()) == of(x.t().contiguous())


def test_the_program_s_default_device_changes_nothing() -> None:
    value = drawn(1000)
    expected = of(value)
    with torch.device("meta"):
        assert of(value) == expected
