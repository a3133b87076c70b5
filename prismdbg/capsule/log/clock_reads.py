"""What a rank read from clocks: in CLOCK records of its log, and, from before it had one, in `rank.json`."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

NAMES = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
CLOCKS = tuple(name + unit for name in NAMES for unit in ("", "_ns"))  # in a record, a clock is its number
MOST_EARLY = 1000
BEGIN = (0, 0)  # the moment of those from before the log
At = tuple[int, int]  # step and collective

# step and collective; the number of the read at this moment; the clock, the function, the place, zeros, the value
_RECORD = struct.Struct("<IIIIIIxxxx8s")
_VALUES = (struct.Struct("<d"), struct.Struct("<q"))  # seconds, ns
_MOST_NUMBER, _MOST_VALUE = 2**32 - 1, 2**63 - 1


class Read(NamedTuple):
    """`function`: a number made of the file's path and the function's name. place: one made of the line that reads,
    and of those that called the function. value: seconds, ns of a clock of those."""

    clock: str
    function: int
    place: int
    value: float


class ClockRead(NamedTuple):
    """`number`: of the read at the moment `at`, from 0."""

    at: At
    number: int
    read: Read

    def to_bytes(self) -> bytes:
        clock, function, place, value = self.read
        kind = CLOCKS.index(clock)
        return _RECORD.pack(*self.at, self.number, kind, function, place, _VALUES[kind % 2].pack(value))

    @classmethod
    def from_bytes(cls, body: bytes) -> ClockRead:
        """`ValueError` or `struct.error` where it is damaged."""
        step, collective, number, clock, function, place, value = _RECORD.unpack_from(body)
        if clock >= len(CLOCKS):
            raise ValueError(f"no clock has the number {clock}")
        return cls(
            (step, collective), number, Read(CLOCKS[clock], function, place, _VALUES[clock % 2].unpack(value)[0])
        )


def are_reads(reads: Iterable[Any]) -> str:
    """A rule: each is a `Read`."""
    return "" if all(map(_is_read, reads)) else "must be lists of a clock, a function's number, a place's and a value"


def _is_read(read: object) -> bool:
    if not isinstance(read, list | tuple) or len(read) != len(Read._fields):
        return False
    clock, function, place, value = read
    return (
        clock in CLOCKS
        and _is_whole(function, _MOST_NUMBER)
        and _is_whole(place, _MOST_NUMBER)
        and (_is_whole(value, _MOST_VALUE) if clock.endswith("_ns") else _is_seconds(value))
    )


def _is_whole(number: object, most: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= most


def _is_seconds(number: object) -> bool:
    return isinstance(number, float) and math.isfinite(number) and number >= 0
