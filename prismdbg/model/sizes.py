"""Amounts of memory, as people write and read them. GB is 10^9 bytes, GiB is 2^30, everywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNITS: Mapping[str, int] = {
    "B": 1,
    **{f"{prefix}B": 1000**i for i, prefix in enumerate("kMGT", 1)},
    **{f"{prefix}iB": 1024**i for i, prefix in enumerate("KMGT", 1)},
}
"""The unit's name and its bytes (IEC 80000-13: kB is 1000, KiB is 1024)."""
_ANY_CASE = {name.lower(): size_bytes for name, size_bytes in UNITS.items()}
# A letter alone is binary, as for Docker's --memory, dd and systemd.
_SHORT = {"": 1, **{letter: 1024**i for i, letter in enumerate("kmgt", 1)}}
_WRITTEN = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)")


def size(size_bytes: int) -> str:
    """`338.2 MiB`, `12 B`."""
    value = float(size_bytes)
    for unit in _UNITS:
        if round(value, 1) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{int(value)} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def as_given(size_bytes: int) -> str:
    """`80 GB`, `512 MiB`: exact, in the unit in which people write it, that of the smallest whole number."""
    unit = min((name for name in UNITS if size_bytes % UNITS[name] == 0), key=lambda name: size_bytes / UNITS[name])
    return f"{size_bytes // UNITS[unit]} {unit}"


def unit_bytes(unit: str) -> int | None:
    """The bytes of `GiB`, `gb` or `B`, whatever its case; None for no unit of size."""
    return _ANY_CASE.get(unit.lower())


def parse_size(text: str) -> int:
    """Whole bytes of `4GiB`, `80 GB`, `1.5GiB`, `512M` (MiB) or `1000`. `ValueError` for anything else."""
    written = _WRITTEN.fullmatch(text.strip())
    unit = written[2].lower() if written else ""
    factor = _ANY_CASE.get(unit, _SHORT.get(unit))
    if written is None or factor is None:
        raise ValueError(f"{text!r} is not a size")
    return int(Fraction(written[1]) * factor)
