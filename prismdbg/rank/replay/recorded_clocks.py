"""Clocks of a replayed rank give what they gave the recorded one, read by read.

A read is known by its moment, its clock and the function and line that reads. One that is not in the record goes on
from the last one that is, at the speed of the real clock. Standard library only, for a program may read a clock before
it imports torch.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prismdbg.capsule.log.clock_reads import BEGIN, At, Read
from prismdbg.capsule.log.clock_reads import ClockReads as Record
from prismdbg.rank.program import clocks
from prismdbg.rank.program.clocks import Clock, Site

_NS_PER_S = 1_000_000_000
_SHOWN = 20
_Left = dict[tuple[str, int], deque[Read]]  # by clock and function


class RecordedClocks:
    """`moment`, `is_quiet`: of the rank, once it knows. not_recorded: places of the program whose reads the record
    lacks, such as `train.py:12 time.time`. `early`: reads from before the recorded rank had a log."""

    def __init__(self, early: Iterable[Sequence[Any]] = ()) -> None:
        self.moment: Callable[[], At] = lambda: BEGIN
        self.is_quiet: Callable[[], bool] = lambda: False
        self.not_recorded: dict[str, None] = {}
        self._by_moment: dict[At, list[Read]] = {BEGIN: [Read(*read) for read in early]}
        self._at: At | None = None
        self._left: _Left = {}
        self._ahead_ns: dict[str, int] = {}  # of the real clock; as a rule less than 0

    def begin(self) -> None:
        clocks.observe(self)
        os.register_at_fork(after_in_child=lambda: clocks.observe(None))  # what the rank forks is not replayed

    def go_on(
        self,
        records: Iterable[Record],
        moment: Callable[[], At],
        is_quiet: Callable[[], bool],
        at: At = BEGIN,
        past: int = 0,
    ) -> None:
        """With records of a log. `past`: so many reads the rank has made at the moment `at`."""
        self.moment, self.is_quiet = moment, is_quiet
        for record in records:
            done = max(past - record.number, 0) if record.at == at else 0
            if record.at == self._at:
                _sort(record.reads[done:], self._left)
            else:
                self._by_moment.setdefault(record.at, []).extend(record.reads[done:])

    def read(self, clock: Clock, site: Site) -> Any:
        if self.is_quiet():
            return self._continued(clock)
        if (moment := self.moment()) != self._at:
            self._at, self._left = moment, {}
            _sort(self._by_moment.pop(moment, ()), self._left)
        recorded = _taken(self._left.get((clock.__name__, site.number)), site.line)
        if recorded is None:
            if len(self.not_recorded) < _SHOWN:
                self.not_recorded[f"{site.path.rpartition('/')[2]}:{site.line} time.{clock.__name__}"] = None
            return self._continued(clock)
        self._ahead_ns[_family(clock)] = _ns(clock, recorded) - _ns(clock, clock.now())
        return recorded

    def _continued(self, clock: Clock) -> Any:
        now = clock.now()
        ahead_ns = self._ahead_ns.get(_family(clock), 0)
        return now + (ahead_ns if isinstance(now, int) else ahead_ns / _NS_PER_S)


_begun: RecordedClocks | None = None


def begin(early: Iterable[Sequence[Any]]) -> None:
    """Called before the first line of a program that is started again."""
    global _begun
    _begun = RecordedClocks(early)
    _begun.begin()


def begun() -> RecordedClocks | None:
    """None where the capsule does not say what was read."""
    return _begun


def _sort(reads: Iterable[Read], left: _Left) -> None:
    for read in reads:
        left.setdefault((read.clock, read.function), deque()).append(read)


def _taken(left: deque[Read] | None, line: int) -> Any:
    """The next value that was read in this line. Those before it were read where the replay did not come by: it may
    begin later. An edited function has other lines."""
    if not left:
        return None
    if any(read.line == line for read in left):
        while left[0].line != line:
            left.popleft()
    return left.popleft().value


def _family(clock: Clock) -> str:
    return clock.__name__.removesuffix("_ns")


def _ns(clock: Clock, value: Any) -> int:
    return int(value) if clock.__name__.endswith("_ns") else round(value * _NS_PER_S)
