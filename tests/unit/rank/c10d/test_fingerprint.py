"""The fingerprint against its definition, written down here a second time in plain integers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.rank.c10d import fingerprint

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def defined(*tensors: bytes) -> int:
    whole = 0
    for data in tensors:
        value = 0
        for start in range(0, len(data), 8 * 4096):
            block = data[start : start + 8 * 4096]
            words = (int.from_bytes(block[i : i + 8], "little") for i in range(0, len(block), 8))
            total = sum(word * (_mix((i + 1) * GOLDEN & MASK) | 1) for i, word in enumerate(words))
            value = (value * GOLDEN + total) & MASK
        whole = _mix((whole * GOLDEN + _mix(value ^ (len(data) * 0xD6E8FEB86659FD93 & MASK))) & MASK)
    return whole


def tensor(data: bytes) -> torch.Tensor:
    return torch.tensor(list(data), dtype=torch.uint8)


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=3))
def test_small_tensors_have_the_defined_value(parts: list[bytes]) -> None:
    assert fingerprint.of([tensor(part) for part in parts]) == defined(*parts)


@pytest.mark.parametrize("size", [8 * 4096 - 1, 8 * 4096, 8 * 4096 + 1, 100_003])
def test_whole_and_cut_blocks_have_the_defined_value(size: int) -> None:
    data = bytes((i * 37 + 11) % 256 for i in range(size))
    assert fingerprint.of([tensor(data)]) == defined(data)


def test_the_value_does_not_change_between_releases() -> None:
    """Logs of an older prismdbg are compared with replays under a newer one."""
    assert fingerprint.of([torch.arange(100, dtype=torch.int32)]) == 0x9553F73644215F0A
    assert fingerprint.of([torch.empty(0)]) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])),
        (torch.eye(2), torch.eye(2).flip(0)),
        (torch.full((4,), math.nan), torch.zeros(4)),
        (torch.full((4,), math.nan), torch.full((5,), math.nan)),
        (torch.zeros(1), torch.zeros(2)),
        (torch.empty(0), torch.zeros(1)),
        (torch.tensor([0.0]), torch.tensor([-0.0])),
    ],
    ids=["order", "rows", "nan", "nan length", "length", "empty", "sign of zero"],
)
def test_what_differs_has_another_fingerprint(one: torch.Tensor, other: torch.Tensor) -> None:
    assert fingerprint.of([one]) != fingerprint.of([other])


def test_tensors_are_told_apart_from_their_concatenation() -> None:
    x = torch.arange(8.0)
    assert fingerprint.of([x]) != fingerprint.of(list(x.chunk(2))) != fingerprint.of(list(x.chunk(2))[::-1])


def test_strides_do_not_matter() -> None:
    x = torch.arange(12.0).view(3, 4).t()
    assert fingerprint.of([x]) == fingerprint.of([x.contiguous()])


def test_an_unaligned_view_is_hashed_like_its_copy() -> None:
    x = torch.arange(100, dtype=torch.uint8)[3:]
    assert fingerprint.of([x]) == fingerprint.of([x.clone()])


FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e5m2, torch.complex64]


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nonfinite_values_are_found(dtype: torch.dtype, value: float) -> None:
    x = torch.ones(100, dtype=torch.float32)
    assert not fingerprint.nonfinite([x.to(dtype)])
    x[77] = value
    assert fingerprint.nonfinite([torch.ones(3), x.to(dtype)])


def test_a_sum_that_overflows_is_not_taken_for_a_nonfinite_value() -> None:
    assert not fingerprint.nonfinite([torch.full((10,), 3e38)])


def test_integers_are_always_finite() -> None:
    assert not fingerprint.nonfinite([torch.tensor([-1, 2**62]), torch.empty(0)])


@pytest.mark.parametrize("size", [1, 8 * 4096, 100_003])
def test_the_program_s_default_device_changes_nothing(size: int) -> None:
    data = tensor(bytes(i % 251 for i in range(size)))
    expected = fingerprint.of([data])
    with torch.device("meta"):
        assert fingerprint.of([data]) == expected
