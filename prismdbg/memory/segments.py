"""What a device's allocator has of it: ranges of addresses."""

from __future__ import annotations

import numpy as np

from prismdbg.capsule.memory_format import Kind
from prismdbg.memory.trace import MemoryTrace
from prismdbg.model.address_ranges import AddressRanges, Range


def reserved_ranges(trace: MemoryTrace, row: int | None = None) -> list[Range]:
    """(address, end) of each, by address: after everything that lies before `row`, None for the trace's end."""
    ranges = AddressRanges()
    kinds = trace.kind[:row]
    for at in np.flatnonzero((kinds == Kind.RESERVED) | (kinds == Kind.RELEASED)).tolist():
        address = int(trace.address[at])
        change = ranges.add if int(trace.kind[at]) == Kind.RESERVED else ranges.cut
        change(address, address + int(trace.size_bytes[at]))
    return list(ranges)
