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


def by_log(wall_ns: int, offset_ns: int | None) -> int:
    """The same time by the clock of a log with this offset; None: no log is known. The machine's clock may have been
    set after this process began and before the log did."""
    return wall_ns if offset_ns is None else monotonic_of(wall_ns) + offset_ns
