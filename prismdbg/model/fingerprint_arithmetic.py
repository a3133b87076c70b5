"""The arithmetic of fingerprints that needs no tensor: mixing, and what zeros alone give."""

from __future__ import annotations

from collections.abc import Iterable

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
LENGTH = 0xD6E8FEB86659FD93


def as_signed(number: int) -> int:
    """64 bits as a signed number, as columns and tensors have them."""
    return number - (1 << 64) if number >> 63 else number


def mix64(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def of_zeros(sizes_bytes: Iterable[int]) -> int:
    """The fingerprint of tensors of these sizes that hold nothing but zeros."""
    value = 0
    for size in sizes_bytes:
        value = mix64((value * GOLDEN + mix64((size * LENGTH) & MASK)) & MASK)
    return value
