"""A trace in the shape of `torch.cuda.memory._snapshot()`, for pytorch.org/memory_viz. Pickles are written, never read.

The CPU allocator keeps no segments, so every block that lives at the end is one of its own.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from prismdbg.capsule.memory_format import Kind
from prismdbg.errors import UsageError
from prismdbg.memory.live import live_at
from prismdbg.memory.trace import Block, MemoryTrace, Site

_PROTOCOL = 4  # what the viewer in the browser can read


def write_snapshot(trace: MemoryTrace, path: Path) -> None:
    try:
        path.write_bytes(pickle.dumps(snapshot(trace), protocol=_PROTOCOL))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="choose another place") from None


def snapshot(trace: MemoryTrace) -> dict[str, Any]:
    """Blocks from before the trace are there at its end, or freed in it; nobody knows who made them."""
    frames: dict[int, list[dict[str, Any]]] = {}

    def named(number: int) -> list[dict[str, Any]]:
        if number not in frames:
            frames[number] = _frames(trace.site_at(number))
        return frames[number]

    events: list[dict[str, Any]] = []
    kinds = {Kind.ALLOCATION: ("alloc",), Kind.FREE: ("free_requested", "free_completed")}
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
    alive = live_at(trace)
    return {
        "segments": [_segment(trace.allocation(row), named(int(trace.site[row]))) for row in alive.rows.tolist()],
        "device_traces": [events],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _frames(site: Site) -> list[dict[str, Any]]:
    """The operators first, as if they were frames: innermost first."""
    operators = [op for op in dict.fromkeys((site.op, site.outer_op)) if op]
    return [
        *({"filename": "", "line": 0, "name": op} for op in operators),
        *({"filename": f.filename, "line": f.line, "name": f.name} for f in site.frames),
    ]


def _segment(block: Block, frames: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "device": 0,
        "address": block.address,
        "total_size": block.size_bytes,
        "allocated_size": block.size_bytes,
        "active_size": block.size_bytes,
        "requested_size": block.size_bytes,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": frames,
        "blocks": [
            {
                "address": block.address,
                "size": block.size_bytes,
                "requested_size": block.size_bytes,
                "state": "active_allocated",
                "frames": frames,
            }
        ],
    }
