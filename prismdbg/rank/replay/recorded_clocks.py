"""Clocks of a replayed rank give what they gave the recorded one, read by read.

A read is known by its moment, its clock and the place that reads. One that is not in the record goes on from the last
one that is, at the speed of the real clock; so do the clocks of other threads, which the program may compare with it.
Standard library only, for a program may read a clock before it imports torch.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from prismdbg.capsule.log.clock_reads import BEGIN, At, ClockRead, Read
from prismdbg.rank.program import clocks
from prismdbg.rank.program.clocks import Clock, Site

# A program that reads for so long what is not in the record may wait for what has the real time, as a file does.
CATCHES_UP_S = 10.0
_LONGEST_PAUSE_S = 1.0  # between two reads of such a loop
_OF_FILES = "time"
_NS_PER_S = 1_000_000_000
_SHOWN = 20


class RecordedClocks:
    """`moment`, `is_quiet`: of the rank, once it knows. has_any: whether reads of the recorded rank are known. is_left:
    whether this rank reads what nobody gives it. not_recorded: places whose reads the record lacks, such as
    `train.py:12 time.time`.

    early: reads from before the recorded rank had a log. `edited`: files whose lines are others than the recorded.
    """

    def __init__(self, early: Iterable[Sequence[Any]] = (), edited: Collection[str] = ()) -> None:
        self.moment: Callable[[], At] = lambda: BEGIN
        self.is_quiet: Callable[[], bool] = lambda: False
        self.has_any = self.is_left = False
        self.not_recorded: dict[str, None] = {}
        self._edited = frozenset(edited)
        self._by_moment: dict[At, list[Read]] = {BEGIN: [Read(*read) for read in early]}
        self._at: At | None = None
        self._left: dict[tuple[str, int], deque[Read]] = {}  # by clock and function
        self._ahead_ns: dict[str, int] = {}  # of the real clock, by clock; as a rule less than 0
        self._missed_s: float | None = None  # when the last read was that is not in the record
        self._astray_s = 0.0  # how long such reads have gone on

    def begin(self) -> None:
        clocks.observe(self)
        os.register_at_fork(after_in_child=lambda: clocks.observe(None))  # what the rank forks is not replayed

    def go_on(self, moment: Callable[[], At], is_quiet: Callable[[], bool]) -> None:
        self.moment, self.is_quiet = moment, is_quiet

    def forget(self) -> None:
        """What was not read so far is not read any more."""
        self._by_moment.clear()
        self._left.clear()

    def add(self, records: Iterable[ClockRead], at: At = BEGIN, past: int = 0) -> None:
        """Those of a log. `past`: so many reads the rank has made at the moment `at`."""
        last: dict[str, Read] = {}  # by clock, whatever its unit
        for record in records:
            self.has_any = True
            if record.at < at or (record.at == at and record.number < past):
                last[record.read.clock.removesuffix("_ns")] = record.read
                continue
            if record.at == self._at:
                self._put(record.read)
            else:
                self._by_moment.setdefault(record.at, []).append(record.read)
        for name, read in last.items():
            if name != "thread_time":  # which is another one here, in a thread of the agent
                self._goes_on_from(clocks.clock_of(read.clock), read.value)

    def read(self, clock: Clock, site: Site) -> Any:
        if self.is_quiet():
            return self._continued(clock)
        if (moment := self.moment()) != self._at:
            self._at, self._left = moment, {}
            for read in self._by_moment.pop(moment, ()):
                self._put(read)
        recorded = self._taken(clock.__name__, site)
        if recorded is None:
            self._miss(f"{site} time.{clock.__name__}")
            return self._continued(clock)
        self._missed_s, self._astray_s = None, 0.0
        self._goes_on_from(clock, recorded)
        return recorded

    def read_beside(self, clock: Clock, site: Site) -> Any:
        self._tell(f"{site} time.{clock.__name__} in another thread")
        return self._continued(clock)

    def _put(self, read: Read) -> None:
        self._left.setdefault((read.clock, read.function), deque()).append(read)

    def _taken(self, name: str, site: Site) -> Any:
        """The next value that was read from this place; of an edited function, whose lines are others, the next one."""
        left = self._left.get((name, site.function))
        if not left:
            return None
        if self._edited and any(path in self._edited for path, *_ in site.lines):
            return left.popleft().value
        place = site.place
        for read in left:
            if read.place == place:
                left.remove(read)
                return read.value
        return None

    def _miss(self, what: str) -> None:
        """Only forward, and only the clock that files have their times of."""
        self._tell(what)
        now_s = clocks.monotonic_s()
        if self._missed_s is not None:
            self._astray_s += min(now_s - self._missed_s, _LONGEST_PAUSE_S)
        self._missed_s = now_s
        if self._astray_s > CATCHES_UP_S and self._ahead_ns.get(_OF_FILES, 0) < 0:
            self._ahead_ns[_OF_FILES] = 0

    def left(self) -> None:
        self.is_left = True

    def _goes_on_from(self, clock: Clock, value: Any) -> None:
        self._ahead_ns[_family(clock)] = _ns(clock, value) - _ns(clock, clock.now())

    def _tell(self, what: str) -> None:
        if len(self.not_recorded) < _SHOWN:
            self.not_recorded[what] = None

    def _continued(self, clock: Clock) -> Any:
        now = clock.now()
        ahead_ns = self._ahead_ns.get(_family(clock), 0)
        return now + (ahead_ns if isinstance(now, int) else ahead_ns / _NS_PER_S)


_begun: RecordedClocks | None = None


def begin(early: Iterable[Sequence[Any]], edited: Collection[str]) -> None:
    """Called before the first line of a program that is started again."""
    global _begun
    _begun = RecordedClocks(early, edited)
    _begun.has_any = True
    _begun.begin()


def begun() -> RecordedClocks | None:
    """None where the capsule does not say what was read."""
    return _begun


def _family(clock: Clock) -> str:
    return clock.__name__.removesuffix("_ns")


def _ns(clock: Clock, value: Any) -> int:
    return int(value) if clock.__name__.endswith("_ns") else round(value * _NS_PER_S)
