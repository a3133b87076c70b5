"""The time of day, in an order: whoever sets the machine's clock meanwhile moves nothing that was seen."""

from __future__ import annotations

import time

_OFFSET_NS = time.time_ns() - time.monotonic_ns()


def wall_ns() -> int:
    """Nanoseconds since 1970 by the clock as it stood when this process began, never less than the call before."""
    return _OFFSET_NS + time.monotonic_ns()


def monotonic_of(wall_ns: int) -> int:
    """CLOCK_MONOTONIC, by which logs have their times, at a time that `wall_ns` gave."""
    return wall_ns - _OFFSET_NS
