"""Allocations that a cap on the program's own blocks did not let through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismdbg.capsule.memory_format import Kind
from prismdbg.memory.trace import MemoryTrace, Site
from prismdbg.model.moment import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`held_bytes`: what the program's own blocks held when it asked for `size_bytes` more."""

    moment: Moment
    size_bytes: int
    held_bytes: int
    site: Site


def refusals(trace: MemoryTrace) -> list[Refusal]:
    """In the order in which they happened: a program that goes on with less may meet several."""
    return [
        Refusal(
            moment=trace.moment(row),
            size_bytes=int(trace.size_bytes[row]),
            held_bytes=int(trace.total_bytes[row]),
            site=trace.site_at(int(trace.site[row])),
        )
        for row in np.flatnonzero(trace.kind == Kind.REFUSED).tolist()
    ]
