"""Lengths of time, as people write them."""

from __future__ import annotations

_UNITS = (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0))


def duration(seconds: float) -> str:
    """In the largest unit of which there is more than one: `3.2 days`, `26.0 hours`, `12 seconds`."""
    for unit, unit_s in _UNITS:
        if seconds > unit_s:
            return f"{seconds / unit_s:.1f} {unit}"
    return f"{seconds:.0f} seconds"
