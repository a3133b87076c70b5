"""What a rank read from clocks: in CLOCK records of its log, and, from before it had one, in `rank.json`."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

NAMES = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
CLOCKS = tuple(name + unit for name in NAMES for unit in ("", "_ns"))  # in a record, a clock is its number
MOST_EARLY = 1000
BEGIN = (0, 0)  # the moment of those from before the log
At = tuple[int, int]  # step and collective

# step and collective; the number, at this moment, of the first of the reads that follow; how many
_HEAD = struct.Struct("<IIII")
_READ = struct.Struct("<III8s")  # the clock, the function, the line, the value
_VALUES = (struct.Struct("<d"), struct.Struct("<q"))  # seconds, ns
_MOST_FUNCTION, _MOST_LINE, _MOST_VALUE = 2**32 - 1, 2**32 - 1, 2**63 - 1


class Read(NamedTuple):
    """`function`: a number made of the file's path and the function's name. value: seconds, ns of a clock of those."""

    clock: str
    function: int
    line: int
    value: float


class ClockReads(NamedTuple):
    """Some of the reads at one moment. `number`: of the first of them at that moment, from 0. Without reads, it says
    that later ones are left out."""

    at: At
    number: int
    reads: Sequence[Read]

    def to_bytes(self) -> bytes:
        parts = [_HEAD.pack(*self.at, self.number, len(self.reads))]
        for read in self.reads:
            clock = CLOCKS.index(read.clock)
            parts.append(_READ.pack(clock, read.function, read.line, _VALUES[clock % 2].pack(read.value)))
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, body: bytes) -> ClockReads:
        """`ValueError` or `struct.error` where it is damaged."""
        step, collective, number, count = _HEAD.unpack_from(body)
        if _HEAD.size + count * _READ.size > len(body):
            raise ValueError(f"{count} clock reads do not fit into the record")
        reads = [_read(body, _HEAD.size + place * _READ.size) for place in range(count)]
        return cls((step, collective), number, reads)


def _read(body: bytes, offset: int) -> Read:
    clock, function, line, value = _READ.unpack_from(body, offset)
    if clock >= len(CLOCKS):
        raise ValueError(f"no clock has the number {clock}")
    return Read(CLOCKS[clock], function, line, _VALUES[clock % 2].unpack(value)[0])


def are_reads(reads: Iterable[Any]) -> str:
    """A rule: each is a `Read`."""
    return "" if all(map(_is_read, reads)) else "must be lists of a clock, a function's number, a line and a value"


def _is_read(read: object) -> bool:
    if not isinstance(read, list | tuple) or len(read) != len(Read._fields):
        return False
    clock, function, line, value = read
    return (
        clock in CLOCKS
        and _is_whole(function, _MOST_FUNCTION)
        and _is_whole(line, _MOST_LINE)
        and (_is_whole(value, _MOST_VALUE) if clock.endswith("_ns") else _is_seconds(value))
    )


def _is_whole(number: object, most: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= most


def _is_seconds(number: object) -> bool:
    return isinstance(number, float) and math.isfinite(number) and number >= 0
