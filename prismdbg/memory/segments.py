"""What a device's allocator has of it: ranges of addresses."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

import numpy as np

from prismdbg.capsule.memory_format import Kind
from prismdbg.memory.trace import MemoryTrace

Range = tuple[int, int]


def reserved_ranges(trace: MemoryTrace, row: int | None = None) -> list[Range]:
    """(address, end) of each, by address: after everything that lies before `row`, None for the trace's end. What was
    got in pieces may be given back in others."""
    starts: list[int] = []
    ends: dict[int, int] = {}
    kinds = trace.kind[:row]
    for at in np.flatnonzero((kinds == Kind.RESERVED) | (kinds == Kind.RELEASED)).tolist():
        address = int(trace.address[at])
        end = address + int(trace.size_bytes[at])
        if end <= address:
            continue
        _cut(starts, ends, address, end)
        if int(trace.kind[at]) == Kind.RESERVED:
            insort(starts, address)
            ends[address] = end
    return [(start, ends[start]) for start in starts]


def _cut(starts: list[int], ends: dict[int, int], address: int, end: int) -> None:
    """Of ranges that do not overlap, in order: each is looked at once, when it is cut."""
    first = max(bisect_right(starts, address) - 1, 0)
    if first < len(starts) and ends[starts[first]] <= address:
        first += 1
    last = bisect_left(starts, end, lo=first)
    cut = [(start, ends.pop(start)) for start in starts[first:last]]
    left = [(start, address) for start, _ in cut[:1] if start < address]
    right = [(end, stop) for _, stop in cut[-1:] if stop > end]
    starts[first:last] = [start for start, _ in (*left, *right)]
    ends.update(left + right)
