"""Lengths of time, as people write them."""

from __future__ import annotations

MICROSECONDS = "µs"  # in all that people read; files and options also take `us`, which every keyboard has
_UNITS = (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0))
_FINE = (("s", 10**9), ("ms", 10**6), (MICROSECONDS, 10**3))


def duration(seconds: float) -> str:
    """In the largest unit of which there is more than one: `3.2 days`, `26.0 hours`, `12 seconds`."""
    for unit, unit_s in _UNITS:
        if seconds > unit_s:
            return f"{seconds / unit_s:.1f} {unit}"
    return f"{seconds:.0f} seconds"


def brief(time_ns: float) -> str:
    """`640 µs`, `12.3 ms`, `4.2 s`, `310 s`."""
    unit, unit_ns = unit_of(float(f"{time_ns:.3g}"))  # 999.7 µs is 1.0 ms, not 1000 µs
    value = time_ns / unit_ns
    return f"{value:.0f} {unit}" if value >= 100 or unit_ns == 1 else f"{value:.1f} {unit}"


def four_digits(time_ns: int) -> str:
    """`12.34 ms`, `23,980 s`, for times that are added or compared."""
    unit, unit_ns = unit_of(float(f"{time_ns:.4g}"))
    value = time_ns / unit_ns
    return f"{float(f'{value:.4g}'):,.0f} {unit}" if value >= 9999.5 else f"{value:.4g} {unit}"


def unit_of(time_ns: float) -> tuple[str, int]:
    """The largest unit up to seconds that is no longer than the time, and its nanoseconds."""
    return next((each for each in _FINE if time_ns >= each[1]), ("ns", 1))
