"""The blocks that live at one moment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismdbg.capsule.memory_format import Flag, Kind
from prismdbg.memory.trace import Block, Bools, Ints, MemoryTrace
from prismdbg.model.moment import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """`rows`: those of the allocations, oldest first. `at_row`: the first row that has not happened yet."""

    trace: MemoryTrace
    rows: Ints
    at_row: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes(self) -> Ints:
        return self.trace.size_bytes[self.rows]

    @property
    def is_backend(self) -> Bools:
        return self.trace.is_backend[self.rows]

    @property
    def is_before(self) -> Bools:
        before: Bools = self.trace.kind[self.rows] == Kind.BEFORE
        return before

    @property
    def roughly_placed_bytes(self) -> int:
        """Of blocks whose stack is the last one that was known of their thread, not that of their allocation."""
        rows = self.rows[(self.trace.flags[self.rows] & Flag.OLD_STACK) > 0]
        sites = [site for site in np.unique(self.trace.site[rows]).tolist() if self.trace.site_at(site).frames]
        return int(self.trace.size_bytes[rows[np.isin(self.trace.site[rows], sites)]].sum())

    @property
    def is_least(self) -> bool:
        """There may have been more, older than the trace."""
        return not self.trace.is_whole

    @property
    def program_bytes(self) -> int:
        """The program's own, those from before included."""
        return int(self.sizes[~self.is_backend].sum())

    @property
    def backend_bytes(self) -> int:
        return int(self.sizes[self.is_backend].sum())

    @property
    def reserved_bytes(self) -> int:
        """What the device's allocator holds of it, in use or not."""
        return int(self.trace.reserved_bytes[self.at_row - 1]) if self.at_row else 0

    @property
    def unused_bytes(self) -> int:
        """What of `reserved_bytes` no block asked for, whichever blocks are looked at here; 0 where nothing is
        reserved, as on a CPU."""
        at = self.at_row - 1
        used_bytes = int(self.trace.total_bytes[at] + self.trace.backend_bytes[at]) if self.at_row else 0
        return self.reserved_bytes - used_bytes if self.reserved_bytes else 0

    @property
    def before_bytes(self) -> int:
        return int(self.sizes[self.is_before & ~self.is_backend].sum())

    def largest(self, count: int) -> list[Block]:
        order = np.argsort(-self.sizes, kind="stable")[:count]
        return [self.trace.allocation(int(row)) for row in self.rows[order]]


def live_at(trace: MemoryTrace, moment: Moment | None = None) -> Live:
    """As the rank stands at `moment`, before what happens there; None: at the end of the trace."""
    return live_before(trace, trace.row_at(moment) if moment is not None else len(trace))


def live_before(trace: MemoryTrace, row: int) -> Live:
    """After everything that lies before `row`. What is older than the trace was there all the time."""
    lives = ((trace.made < row) | (trace.kind[trace.made] == Kind.BEFORE)) & (trace.freed >= row)
    return Live(trace=trace, rows=trace.made[lives], at_row=row)
