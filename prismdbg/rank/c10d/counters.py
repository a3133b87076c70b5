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
    """Thread safe. `issue` is called once for every collective, in the order of issue."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
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
        tags = self._next.setdefault((group, op, peer), {})
        if (known := tags.pop(tag, None)) is None and len(tags) >= MOST_TAGS:
            lowest = tags.pop(next(iter(tags)))
            self._forgotten[group, op, peer] = max(self._forgotten.get((group, op, peer), 0), lowest)
        number = self._forgotten.get((group, op, peer), 0) if known is None else known
        tags[tag] = number + 1
        return number

    @property
    def moment(self) -> Moment:
        """The last collective issued."""
        return Moment(self.step, self.collective)

    def issue(self, call: Call) -> tuple[int, Moment, Identity]:
        """record_id, moment and identity of the collective that is now issued."""
        group, op, peer, tag = identity_key(call.spec, call)
        with self._lock:
            sequence = self._used(group, op, peer, tag)
            self.collective += 1
            record_id, self.record_id = self.record_id, self.record_id + 1
            tracer.moved(self.step, self.collective)
            return record_id, Moment(self.step, self.collective), Identity(group, sequence, op, peer, tag)

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
