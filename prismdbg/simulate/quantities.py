"""Times, sizes and rates as people write them, to whole nanoseconds, bytes and bytes a second. A unit is required."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction

from prismdbg.model.durations import MICROSECONDS, unit_of
from prismdbg.model.sizes import UNITS

TIMES_NS: Mapping[str, int] = {"ns": 1, "us": 10**3, MICROSECONDS: 10**3, "ms": 10**6, "s": 10**9}
SIZES: Mapping[str, int] = {**UNITS, "KB": UNITS["kB"]}
RATES: Mapping[str, Fraction] = {
    **{f"{unit}/s": Fraction(size) for unit, size in SIZES.items()},
    **{f"{prefix}bit/s": Fraction(1000**i, 8) for i, prefix in enumerate("kMGT", 1)},
}
MILLION = 10**6
LONGEST_NS = 31 * 24 * 3600 * 10**9
LONGEST_TRANSFER_NS = 24 * 3600 * 10**9  # so that sums of many stay within 64 bits
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(\S+)?")


def time_ns(text: str) -> int:
    value = _whole(text, TIMES_NS, "5 us")
    if value > LONGEST_NS:
        raise ValueError(f"{text!r} is longer than a month: is its unit right?")
    return value


def size_bytes(text: str) -> int:
    return _whole(text, SIZES, "64 KiB")


def rate(text: str) -> int:
    """Bytes a second."""
    return _whole(text, RATES, "25 GB/s")


def factor_ppm(text: str) -> int:
    """A plain positive factor, in millionths."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] or not 0 < Fraction(match[1]) <= 1000:
        raise ValueError(f"{text!r} is not a factor between 0 and 1000, as in 1.05")
    return max(round(Fraction(match[1]) * MILLION), 1)


def percent_ppm(text: str) -> int:
    """`1.5 %`, in millionths."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or match[2] != "%":
        raise ValueError(f"{text!r} is not a share; write it as in 1.5 %")
    return round(Fraction(match[1]) * 10_000)


def say_time(time_ns: int) -> str:
    """Exact."""
    unit, unit_ns = unit_of(time_ns)
    return f"{_decimal(time_ns, unit_ns)} {unit}"


def write_time(time_ns: int) -> str:
    """Exact, for a file, where people type `us`."""
    return say_time(time_ns).replace(MICROSECONDS, "us")


def say_size(size_bytes: int) -> str:
    """Exact."""
    units = [(unit, size) for unit, size in SIZES.items() if unit.endswith("iB")]
    unit, size = next(((u, s) for u, s in reversed(units) if size_bytes and not size_bytes % s), ("B", 1))
    return f"{size_bytes // size} {unit}"


def say_rate(rate: int) -> str:
    """Exact."""
    unit = next((u for u in ("GB", "MB", "kB") if rate >= SIZES[u]), "B")
    return f"{_decimal(rate, SIZES[unit])} {unit}/s"


def say_factor(ppm: int) -> str:
    """Exact."""
    return _decimal(ppm, MILLION)


def say_percent(ppm: int) -> str:
    """Exact."""
    return f"{_decimal(ppm, 10_000)} %"


def _decimal(value: int, size: int) -> str:
    """`value / size`, size a power of ten, all its digits."""
    whole, rest = divmod(value, size)
    digits = f"{rest:0{len(str(size)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def _whole(text: str, units: Mapping[str, int] | Mapping[str, Fraction], example: str) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a quantity; write it as in {example}")
    if not match[2]:
        raise ValueError(f"{text!r} has no unit; write it as in {example}")
    if match[2] not in units:
        raise ValueError(f"{text!r} has the unit {match[2]!r}; one of {', '.join(units)}, as in {example}")
    value = round(Fraction(match[1]) * units[match[2]])
    if value >= 2**62:
        raise ValueError(f"{text!r} is beyond 64 bits")
    return value


def rounded_up_ppm(share: float) -> int:
    """In millionths, rounded up to a tenth of a per cent: how far a fit is off."""
    return math.ceil(share * 1000) * (MILLION // 1000)
