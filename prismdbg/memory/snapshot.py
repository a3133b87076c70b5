"""A trace in the shape of `torch.cuda.memory._snapshot()`, for pytorch.org/memory_viz. It is pickled here;
`importers/memory_snapshot.py` reads such files without unpickling them.

The CPU allocator keeps no segments, so every block that lives at the end is one of its own. A GPU's are in segments,
with what is free between them.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prismdbg.capsule.memory_format import CPU, Kind
from prismdbg.capsule.new_file import whole
from prismdbg.memory.live import live_at
from prismdbg.memory.segments import reserved_ranges
from prismdbg.memory.trace import Block, MemoryTrace, Site

_PROTOCOL = 4  # what the viewer in the browser can read


def write_snapshot(trace: MemoryTrace, path: Path) -> None:
    with whole(path) as place:
        place.write_bytes(pickle.dumps(snapshot(trace), protocol=_PROTOCOL))


def snapshot(trace: MemoryTrace) -> dict[str, Any]:
    """Blocks from before the trace are there at its end, or freed in it; nobody knows who made them."""
    frames: dict[int, list[dict[str, Any]]] = {}

    def named(number: int) -> list[dict[str, Any]]:
        if number not in frames:
            frames[number] = _frames(trace.site_at(number))
        return frames[number]

    events: list[dict[str, Any]] = []
    kinds = {
        Kind.ALLOCATION: ("alloc",),
        Kind.FREE: ("free_requested", "free_completed"),
        Kind.RESERVED: ("segment_alloc",),
        Kind.RELEASED: ("segment_free",),
    }
    columns = (trace.kind, trace.address, trace.size_bytes, trace.time_ns, trace.site)
    for kind, address, size_bytes, time_ns, site in zip(*(column.tolist() for column in columns), strict=True):
        for action in kinds.get(kind, ()):
            events.append(
                {
                    "action": action,
                    "addr": address,
                    "size": size_bytes,
                    "stream": 0,
                    "time_us": (time_ns + trace.wall_offset_ns) // 1000,
                    "frames": named(site),
                }
            )
    index = max(trace.shown - 1, 0)  # the viewer has one trace a GPU
    blocks = [_block(trace.allocation(row), named(int(trace.site[row]))) for row in live_at(trace).rows.tolist()]
    return {
        "segments": [_segment(index, *segment) for segment in _segments(trace, blocks)],
        "device_traces": [*([] for _ in range(index)), events],
        "allocator_settings": {},
        "external_annotations": [],
        **_own(trace),
    }


def _own(trace: MemoryTrace) -> dict[str, Any]:
    """torch's snapshots are of a GPU: of the CPU it is said here, for when we read it again."""
    return {"prismdbg": {"device": "cpu", "whole": trace.is_whole}} if trace.shown == CPU else {}


def _frames(site: Site) -> list[dict[str, Any]]:
    """The operators first, as if they were frames: innermost first."""
    operators = [op for op in dict.fromkeys((site.op, site.outer_op)) if op]
    return [
        *({"filename": "", "line": 0, "name": op} for op in operators),
        *({"filename": f.filename, "line": f.line, "name": f.name} for f in site.frames),
    ]


def _block(block: Block, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "address": block.address,
        "size": block.size_bytes,
        "requested_size": block.size_bytes,
        "state": "active_allocated",
        "frames": frames,
    }


def _free(address: int, size_bytes: int) -> dict[str, Any]:
    return {"address": address, "size": size_bytes, "requested_size": 0, "state": "inactive", "frames": []}


def _segments(trace: MemoryTrace, blocks: list[dict[str, Any]]) -> Iterator[tuple[int, int, list[dict[str, Any]]]]:
    """Address, size and blocks of each; a block that is in no known segment is one of its own."""
    blocks = sorted(blocks, key=lambda block: block["address"])
    starts = [block["address"] for block in blocks]
    inside = 0
    for address, end in reserved_ranges(trace):
        first, beyond = bisect_left(starts, address), bisect_left(starts, end)
        for block in blocks[inside:first]:
            yield block["address"], block["size"], [block]
        yield address, end - address, list(_with_gaps(blocks[first:beyond], address, end))
        inside = beyond
    for block in blocks[inside:]:
        yield block["address"], block["size"], [block]


def _with_gaps(blocks: list[dict[str, Any]], address: int, end: int) -> Iterator[dict[str, Any]]:
    """A block is what was asked for: what the allocator rounded it up by is free here, too."""
    for block in blocks:
        if block["address"] > address:
            yield _free(address, block["address"] - address)
        yield block
        address = block["address"] + block["size"]
    if end > address:
        yield _free(address, end - address)


def _segment(index: int, address: int, size_bytes: int, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    used = sum(block["requested_size"] for block in blocks)
    return {
        "device": index,
        "address": address,
        "total_size": size_bytes,
        "allocated_size": used,
        "active_size": used,
        "requested_size": used,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": blocks[0]["frames"] if len(blocks) == 1 else [],
        "blocks": blocks,
    }
