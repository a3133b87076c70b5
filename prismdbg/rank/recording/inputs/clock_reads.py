"""Records what the program reads from clocks: an input, as the answers of its peers are. A program may send a time,
begin a random generator with one, or decide by one.

Nothing here raises into the program. Standard library only, for a program may read a clock before it imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prismdbg.capsule.log.clock_reads import BEGIN, MOST_EARLY, At, Read
from prismdbg.capsule.log.clock_reads import ClockReads as Record
from prismdbg.rank.program import clocks
from prismdbg.rank.program.clocks import Clock, Site

READS_PER_S, MOST_AT_ONCE = 100.0, 10_000.0  # what is read more often is left out
_IN_A_RECORD = 64
_SOON_S = 0.05  # after a record, a read waits so long for others

Write = Callable[[bytes], None]


class ClockReads:
    """`moment`, `is_quiet`: of the rank, once it knows. at: the moment of the last read. count: of the reads there."""

    def __init__(self) -> None:
        self.moment: Callable[[], At] = lambda: BEGIN
        self.is_quiet: Callable[[], bool] = lambda: False
        self.at, self.count = BEGIN, 0
        self._write: Write | None = None
        self._waiting: list[Read] = []
        self._first = 0  # its number at this moment
        self._is_cut = False
        self._left, self._filled_s, self._written_s = MOST_AT_ONCE, 0.0, 0.0

    def read(self, clock: Clock, site: Site) -> Any:
        value = clock.now()
        if not self.is_quiet():
            self._take(Read(clock.__name__, site.number, site.line, value))
        return value

    def begin(self, write: Write) -> list[Read]:
        """`write` gets the records of later reads. Those from before are returned."""
        early, self._waiting, self._write = self._waiting, [], write
        return early

    def flush(self) -> None:
        """Writes what waits. A process that is killed loses it."""
        if self._write is not None and self._waiting:
            waiting, self._waiting = self._waiting, []
            self._write(Record(self.at, self._first, waiting).to_bytes())

    def _take(self, read: Read) -> None:
        if (moment := self.moment()) != self.at:
            self.flush()
            self.at, self.count = moment, 0
        number, self.count = self.count, self.count + 1
        now_s = clocks.monotonic_s()
        if not self._has_room(now_s):
            self.flush()
            self._say_cut(number)
            return
        if not self._waiting:
            self._first = number
        self._waiting.append(read)
        if len(self._waiting) >= _IN_A_RECORD or now_s - self._written_s > _SOON_S:
            self._written_s = now_s
            self.flush()

    def _say_cut(self, number: int) -> None:
        if self._write is not None and not self._is_cut:
            self._is_cut = True
            self._write(Record(self.at, number, ()).to_bytes())

    def _has_room(self, now_s: float) -> bool:
        if self._write is None:
            return len(self._waiting) < MOST_EARLY
        self._left = min(MOST_AT_ONCE, self._left + (now_s - self._filled_s) * READS_PER_S)
        self._filled_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


READS = ClockReads()
