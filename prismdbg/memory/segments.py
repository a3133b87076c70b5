"""What a device's allocator has of it: ranges of addresses."""

from __future__ import annotations

import numpy as np

from prismdbg.capsule.memory_format import Kind
from prismdbg.memory.trace import MemoryTrace

Range = tuple[int, int]


def reserved_ranges(trace: MemoryTrace, row: int | None = None) -> list[Range]:
    """(address, end) of each, by address: after everything that lies before `row`, None for the trace's end. What was
    got in pieces may be given back in others."""
    known: list[Range] = []
    kinds = trace.kind[:row]
    for at in np.flatnonzero((kinds == Kind.RESERVED) | (kinds == Kind.RELEASED)).tolist():
        address = int(trace.address[at])
        end = address + int(trace.size_bytes[at])
        known = _without(known, address, end)
        if int(trace.kind[at]) == Kind.RESERVED:
            known.append((address, end))
    return sorted(known)


def _without(ranges: list[Range], address: int, end: int) -> list[Range]:
    left = [(first, min(last, address)) for first, last in ranges if first < address]
    right = [(max(first, end), last) for first, last in ranges if last > end]
    return [*left, *right]
