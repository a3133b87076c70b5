"""What a rank did between two marks, told without an object for each collective."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from prismdbg.model.collective import Collective

GAPS_KEPT = 256  # the newest of a batch
NOTABLE_KEPT = 16  # the oldest of a log: what is sought is the first, and after it all may be so
CLEAN_STEPS = 8  # without NaN or Inf, one after another: what comes then is sought anew

Gap = tuple[int, int, int]  # begin, end, record id of the second of two collectives
Key = tuple[str] | tuple[str, str, int, int]  # group; of point-to-point group, operator, peer and tag


@dataclass(slots=True)
class Batch:
    """Collectives that one rank issued or completed one after another. Times are the log's, in nanoseconds.

    reached: the highest sequence number, by `Key`. issued_ns: when each thread last issued one. gaps: the last
    times between two collectives of a thread, as (begin, end, record id of the second). waited_ns: how long those that
    completed had taken, by step, but for those on a device. notable: those that sent NaN or Inf as they were issued,
    those that received some as they were completed; the first of a log only, of a step that follows one that a gradient
    scaler skipped, and after CLEAN_STEPS; none with which pipelining learns shapes. nonfinite: there were such, given
    or not. open: those that were not complete when the log was last read, each given once; closed: record ids of
    earlier batches' open ones that are complete now. last: the one issued last of all that were read.
    """

    reached: dict[Key, int] = field(default_factory=dict)
    issued_ns: dict[int, int] = field(default_factory=dict)
    gaps: deque[Gap] = field(default_factory=lambda: deque(maxlen=GAPS_KEPT))
    waited_ns: dict[int, int] = field(default_factory=dict)
    notable: list[Collective] = field(default_factory=list)
    nonfinite: bool = False
    open: list[Collective] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    last: Collective | None = None
