"""Where a rank is: its moment, and the sequence numbers that give collectives their identity."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from prismdbg.model.collective import Identity
from prismdbg.model.moment import Moment
from prismdbg.rank.c10d.call import Call, identity_key
from prismdbg.rank.tracing import tracer

MOST_TAGS = 1024  # of messages to or from one rank
FORGOTTEN = -(1 << 31)  # in place of a tag: what those that are forgotten count from when they come again


class Counters:
    """Thread safe. `issue` is called once for every collective, in the order of issue.

    A signal's handler may issue one in the middle of it, on the same thread. Python calls handlers after a call and at
    the start of a function or of a round of a loop: lines that have none of these belong together.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._next: dict[
            tuple[str, str, int], dict[int, int]
        ] = {}  # by group, op and peer; by tag, used last at the end
        self._forgotten: dict[tuple[str, str, int], int] = {}
        self.step = 0
        self.collective = 0
        self.record_id = 0

    def begin_step(self, step: int) -> None:
        with self._lock:
            self.step, self.collective = step, 0
        tracer.moved(step, 0)
        tracer.answered()

    def _used(self, group: str, op: str, peer: int, tag: int) -> int:
        """The number of one that is issued. A program may have another tag for each message: of those it used longest
        ago it is forgotten how often, as the native recorder does it (`recorder/counters.h`). One that comes again
        counts from the highest number of these, so no two messages have the same identity."""
        key = group, op, peer
        tags = self._next.setdefault(key, {})
        if tag not in tags:
            if len(tags) >= MOST_TAGS:
                self._forget_oldest(key, tags)
            tags.setdefault(tag, self._forgotten.get(key, 0))
        number = tags[tag]
        del tags[tag]
        tags[tag] = number + 1
        return number

    def _forget_oldest(self, key: tuple[str, str, int], tags: dict[int, int]) -> None:
        oldest = next(iter(tags))
        self._forgotten.setdefault(key, 0)
        if oldest in tags and self._forgotten[key] < tags[oldest]:
            self._forgotten[key] = tags[oldest]
        tags.pop(oldest, None)

    @property
    def moment(self) -> Moment:
        """The last collective issued."""
        return Moment(self.step, self.collective)

    def issue(self, call: Call) -> tuple[int, Moment, Identity]:
        """record_id, moment and identity of the collective that is now issued."""
        group, op, peer, tag = identity_key(call.spec, call)
        with self._lock:
            sequence = self._used(group, op, peer, tag)
            step, collective, record_id = self.step, self.collective + 1, self.record_id
            self.collective, self.record_id = collective, record_id + 1
            tracer.moved(step, collective)
            return record_id, Moment(step, collective), Identity(group, sequence, op, peer, tag)

    def sequences(self) -> list[tuple[str, str, int, int, int]]:
        """(group, op, peer, tag or `FORGOTTEN`, the number that comes next)."""
        with self._lock:
            forgotten = [(*key, FORGOTTEN, number) for key, number in self._forgotten.items()]
            return forgotten + [(*key, tag, number) for key, tags in self._next.items() for tag, number in tags.items()]

    def resume_at(self, at: Moment, record_id: int, sequences: Iterable[tuple[str, str, int, int, int]]) -> None:
        """Takes over where `record_id` collectives had been issued, the last one at `at`."""
        with self._lock:
            self._next, self._forgotten = {}, {}
            for group, op, peer, tag, number in sequences:
                if tag == FORGOTTEN:
                    self._forgotten[group, op, peer] = number
                else:
                    self._next.setdefault((group, op, peer), {})[tag] = number
            self.step, self.collective, self.record_id = at.step, at.collective, record_id
