"""What lies between two moments: the blocks made since and still there, and those that went."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.memory.live import Live, live_at
from prismdbg.memory.trace import MemoryTrace
from prismdbg.model.moment import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """made: allocated from the first moment on and alive at the second: what leaked, if the program is to be as it
    was. gone: alive at the first, freed since."""

    made: Live
    gone: Live

    @property
    def growth_bytes(self) -> int:
        """Of the program's own."""
        return self.made.program_bytes - self.gone.program_bytes


def diff(trace: MemoryTrace, first: Moment, second: Moment) -> Difference:
    """`UsageError` where the first is the later one."""
    if second < first:
        raise UsageError(f"{first} is later than {second}", hint=f"give the earlier one first: {second} {first}")
    earlier, later = live_at(trace, first), live_at(trace, second)
    made = later.rows[(later.rows >= earlier.at_row) & ~later.is_before]  # what was found late was there before
    freed = trace.freed[np.searchsorted(trace.made, earlier.rows)]
    return Difference(
        made=Live(trace=trace, rows=made, at_row=later.at_row),
        gone=Live(trace=trace, rows=earlier.rows[freed < later.at_row], at_row=later.at_row),
    )
