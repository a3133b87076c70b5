"""Records what the program reads from clocks: an input, as the answers of its peers are. A program may send a time,
begin a random generator with one, or decide by one.

Nothing here raises into the program. Standard library only, for a program may read a clock before it imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from prismdbg.capsule.log.clock_reads import BEGIN, MOST_EARLY, At, ClockRead, Read
from prismdbg.rank.program import clocks
from prismdbg.rank.program.clocks import Clock, Site

# Of one place of the program, and of all together. More than that is left out: a loop that waits reads it.
PER_S, AT_ONCE = 20.0, 500.0
ALL_PER_S, ALL_AT_ONCE = 100.0, 10_000.0
MOST_EARLY_OF_A_PLACE = 50  # before there is a log
MOST_EARLY_ASKED = 20_000
_MOST_PLACES = 10_000

Write = Callable[[bytes], None]


class _Allowance:
    def __init__(self, left: float) -> None:
        self.left, self.filled_s = left, math.inf

    def has(self, now_s: float, per_s: float, most: float) -> bool:
        self.left = min(most, self.left + max(now_s - self.filled_s, 0.0) * per_s)
        self.filled_s = now_s
        return self.left >= 1.0


class ClockReads:
    """`moment`, `is_quiet`: of the rank, once it knows. at: the moment of the last read. count: of the reads there."""

    def __init__(self) -> None:
        self.moment: Callable[[], At] = lambda: BEGIN
        self.is_quiet: Callable[[], bool] = lambda: False
        self.at, self.count = BEGIN, 0
        self._write: Write | None = None
        self._early: list[Read] = []
        self._early_of: dict[int, int] = {}
        self._is_full = False
        self._all = _Allowance(ALL_AT_ONCE)
        self._by_place: dict[int, _Allowance] = {}
        self._left_out: set[int] = set()  # places, until the moment is another one: a replay goes on from the last read

    def read(self, clock: Clock, site: Site) -> Any:
        value = clock.now()
        if not self.is_quiet():
            self._take(Read(clock.__name__, site.function, site.place, value))
        return value

    def read_beside(self, clock: Clock, site: Site) -> Any:
        """Which of the main thread's reads it comes after is another matter in each run."""
        return clock.now()

    def left(self) -> None:
        """What is read from here on is not recorded; a replay comes to the same place."""

    def begin(self, write: Write) -> list[Read]:
        """`write` gets the records of later reads. Those from before are returned."""
        early, self._early, self._write = self._early, [], write
        return early

    def _take(self, read: Read) -> None:
        if (moment := self.moment()) != self.at:
            self.at, self.count = moment, 0
            self._left_out.clear()
        number, self.count = self.count, self.count + 1
        if not self._has_room(read.place):
            self._left_out.add(read.place)
        elif self._write is not None:
            self._write(ClockRead(moment, number, read).to_bytes())
        else:
            self._early.append(read)
            self._early_of[read.place] = self._early_of.get(read.place, 0) + 1

    def _has_room(self, place: int) -> bool:
        if self._write is None:
            return self._has_early_room(place)
        if place in self._left_out or (self._is_full and self.at == BEGIN):
            return False
        if place not in self._by_place and len(self._by_place) >= _MOST_PLACES:
            return False
        now_s, own = clocks.monotonic_s(), self._by_place.setdefault(place, _Allowance(AT_ONCE))
        if not (own.has(now_s, PER_S, AT_ONCE) and self._all.has(now_s, ALL_PER_S, ALL_AT_ONCE)):
            return False
        own.left, self._all.left = own.left - 1.0, self._all.left - 1.0
        return True

    def _has_early_room(self, place: int) -> bool:
        """Most processes are no rank, and write no log: in the end they are not asked any more."""
        self._is_full = len(self._early) >= MOST_EARLY or self.count >= MOST_EARLY_ASKED
        if self._is_full:
            clocks.observe(None)
        return not self._is_full and self._early_of.get(place, 0) < MOST_EARLY_OF_A_PLACE


READS = ClockReads()
