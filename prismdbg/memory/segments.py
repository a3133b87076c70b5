"""What a device's allocator has of it: ranges of addresses."""

from __future__ import annotations

import numpy as np

from prismdbg.capsule.memory_format import Kind
from prismdbg.memory.trace import MemoryTrace
from prismdbg.model.address_ranges import Change, Range, ranges_after


def reserved_ranges(trace: MemoryTrace, row: int | None = None) -> list[Range]:
    """(address, end) of each, by address: after everything that lies before `row`, None for the trace's end."""
    kinds = trace.kind[:row]
    rows = np.flatnonzero((kinds == Kind.RESERVED) | (kinds == Kind.RELEASED))
    columns = (column[rows].tolist() for column in (trace.kind, trace.address, trace.size_bytes))
    return ranges_after(
        Change(address, address + size_bytes, kind == Kind.RESERVED)
        for kind, address, size_bytes in zip(*columns, strict=True)
    )
