"""Where the story of a trace ends, and what lives there: one moment has one sum, whoever asks for it."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.memory.live import Live, live_at
from prismdbg.memory.trace import MemoryTrace
from prismdbg.model.moment import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEnd:
    """at_b: as the rank stands at its capsule's last collective; None where there is no capsule.

    stands: where the trace ends because the rank stands there. last: where it ends otherwise, after `last_moment`: a
    rank goes on from B to its next call, or to its program's end.
    """

    b: Moment | None = None
    at_b: Live | None = None
    stands: Moment | None = None
    last_moment: Moment
    last: Live


def trace_end(trace: MemoryTrace, *, b: Moment | None = None, stands: Moment | None = None) -> TraceEnd:
    """Where the rank stands before B, nothing is known of B."""
    behind = b is not None and (stands is None or b <= stands)
    return TraceEnd(
        b=b if behind else None,
        at_b=live_at(trace, b) if behind else None,
        stands=stands,
        last_moment=trace.end,
        last=live_at(trace),
    )
