"""The highest that memory came to, and which allocation made it so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismdbg.capsule.memory_format import Flag, Kind
from prismdbg.memory.live import Live, live_before
from prismdbg.memory.trace import Block, Ints, MemoryTrace
from prismdbg.model.moment import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """`live`: what was alive then, the allocation that made the peak included; that is None where the peak is what
    was there from the start. is_least: there may have been more, older than the trace.

    backend_bytes: what the communication backend held then; `counts_backend`: it is in `size_bytes`, and its blocks in
    `live`.
    """

    row: int
    moment: Moment
    size_bytes: int
    allocation: Block | None
    live: Live
    backend_bytes: int
    counts_backend: bool
    is_least: bool


def peak(
    trace: MemoryTrace,
    begin: Moment | None = None,
    end: Moment | None = None,
    *,
    made_inside: bool = False,
    with_backend: bool = False,
) -> Peak | None:
    """The first time that the most was live, from `begin` to before `end`. None where nothing happened there.

    made_inside: only blocks that were made in that stretch count, as torch.profiler counts for its own.
    """
    first, beyond = stretch(trace, begin, end)
    if first >= beyond:
        return None
    levels = levels_of(trace, first, beyond, made_inside=made_inside, with_backend=with_backend)
    row = first + int(np.argmax(levels))
    live = live_before(trace, row + 1)
    chosen = np.ones(len(live), dtype=bool)
    if made_inside:
        chosen &= (live.rows >= first) & ~live.is_before
    backend_bytes = int(live.sizes[chosen & live.is_backend].sum())
    if not with_backend:
        chosen &= ~live.is_backend
    return Peak(
        row=row,
        moment=trace.moment(row),
        size_bytes=int(levels[row - first]),
        allocation=trace.allocation(row) if int(trace.kind[row]) == Kind.ALLOCATION else None,
        live=Live(trace=trace, rows=live.rows[chosen], at_row=row + 1),
        backend_bytes=backend_bytes,
        counts_backend=with_backend,
        is_least=not (made_inside or trace.is_whole),
    )


def levels_of(
    trace: MemoryTrace, first: int, beyond: int, *, made_inside: bool = False, with_backend: bool = False
) -> Ints:
    """Bytes live after each row of the stretch."""
    rows = slice(first, beyond)
    if not made_inside:
        return trace.total_bytes[rows] + (trace.backend_bytes[rows] if with_backend else 0)
    change = np.zeros(beyond - first, dtype=np.int64)
    inside = (trace.made >= first) & (trace.made < beyond) & (trace.kind[trace.made] == Kind.ALLOCATION)
    if not with_backend:
        inside &= (trace.flags[trace.made] & Flag.BACKEND) == 0
    made, freed = trace.made[inside], trace.freed[inside]
    change[made - first] = trace.size_bytes[made]
    gone = freed < beyond
    change[freed[gone] - first] = -trace.size_bytes[made[gone]]
    return np.cumsum(change)


def stretch(trace: MemoryTrace, begin: Moment | None, end: Moment | None) -> tuple[int, int]:
    """The first row and the one beyond the last. While blocks from before are being listed nothing happens yet."""
    listed = int(np.argmax(trace.kind != Kind.BEFORE)) if len(trace) else 0
    first = max(trace.row_at(begin), listed) if begin is not None else listed
    return first, trace.row_at(end) if end is not None else len(trace)
