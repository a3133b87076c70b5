"""Live blocks as a flame graph for speedscope (speedscope.app): bytes by stack, the operators innermost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from prismdbg.capsule.new_file import whole
from prismdbg.memory.grouping import BACKEND, BEFORE
from prismdbg.memory.live import Live
from prismdbg.memory.trace import Site

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_NO_STACK = "no Python stack"


def write_flame(live: Live, name: str, path: Path) -> None:
    with whole(path) as place:
        place.write_text(json.dumps(flame(live, name)), encoding="utf-8")


def flame(live: Live, name: str) -> dict[str, Any]:
    """One sample for each place in the program where live blocks were made, weighted by their bytes."""
    frames: dict[tuple[str, str, int], int] = {}
    samples, weights = [], []
    for stack, size_bytes in sorted(_sizes(live).items()):
        samples.append([frames.setdefault(frame, len(frames)) for frame in stack])
        weights.append(size_bytes)
    return {
        "$schema": SCHEMA,
        "exporter": "prismdbg",
        "name": name,
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(*frame) for frame in frames]},
        "profiles": [
            {
                "type": "sampled",
                "name": name,
                "unit": "bytes",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": samples,
                "weights": weights,
            }
        ],
    }


_Stack = tuple[tuple[str, str, int], ...]  # name, file, line; outermost first


def _sizes(live: Live) -> dict[_Stack, int]:
    found: dict[_Stack, int] = {}
    unknown = live.is_before & (live.trace.site[live.rows] == 0)
    for rows, label in ((live.is_backend, BACKEND), (unknown & ~live.is_backend, BEFORE)):
        if rows.any():
            found[(label, "", 0),] = int(live.sizes[rows].sum())
    known = ~live.is_backend & ~unknown
    sites, place = np.unique(live.trace.site[live.rows[known]], return_inverse=True)
    sums = np.bincount(place, weights=live.sizes[known], minlength=len(sites))
    for site, size_bytes in zip(sites.tolist(), sums.tolist(), strict=True):
        stack = _stack(live.trace.site_at(site))
        found[stack] = found.get(stack, 0) + round(size_bytes)
    return found


def _stack(site: Site) -> _Stack:
    calls = tuple((frame.name, frame.filename, frame.line) for frame in reversed(site.frames))
    operators = tuple((op, "", 0) for op in dict.fromkeys((site.outer_op, site.op)) if op)
    return (calls or ((_NO_STACK, "", 0),)) + operators


def _frame(name: str, file: str, line: int) -> dict[str, Any]:
    return {"name": name, "file": file, "line": line} if file else {"name": name}
