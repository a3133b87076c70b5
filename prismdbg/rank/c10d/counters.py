"""Where a rank is: its moment, and the sequence numbers that give collectives their identity."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from prismdbg.model.collective import Collective, Identity
from prismdbg.model.moment import Moment
from prismdbg.rank.c10d.call import Call, identity_key
from prismdbg.rank.tracing import tracer


class Counters:
    """Thread safe. `issue` is called once for every collective, in the order of issue."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sequences: dict[tuple[str, str, int, int], int] = {}
        self.step = 0
        self.collective = 0
        self.record_id = 0

    def begin_step(self, step: int) -> None:
        with self._lock:
            self.step, self.collective = step, 0
        tracer.moved(step, 0)
        tracer.answered()

    @property
    def moment(self) -> Moment:
        """The last collective issued."""
        return Moment(self.step, self.collective)

    def issue(self, call: Call) -> tuple[int, Moment, Identity]:
        """record_id, moment and identity of the collective that is now issued."""
        group, op, peer, tag = key = identity_key(call.spec, call)
        with self._lock:
            sequence = self._sequences.get(key, 0)
            self._sequences[key] = sequence + 1
            self.collective += 1
            record_id, self.record_id = self.record_id, self.record_id + 1
            tracer.moved(self.step, self.collective)
            return record_id, Moment(self.step, self.collective), Identity(group, sequence, op, peer, tag)

    def sequences(self) -> list[tuple[str, str, int, int, int]]:
        """(group, op, peer, tag, the number that comes next)."""
        with self._lock:
            return [(*key, number) for key, number in self._sequences.items()]

    def resume_at(self, at: Moment, record_id: int, sequences: Iterable[tuple[str, str, int, int, int]]) -> None:
        """Takes over where `record_id` collectives had been issued, the last one at `at`."""
        with self._lock:
            self._sequences = {(group, op, peer, tag): number for group, op, peer, tag, number in sequences}
            self.step, self.collective, self.record_id = at.step, at.collective, record_id

    def resume_before(self, past: list[Collective], step: int, collective: int) -> None:
        """Takes over as if exactly the collectives in `past` had been issued."""
        with self._lock:
            for record in past:
                identity = record.identity
                key = (identity.group, identity.op, identity.peer, identity.tag)
                self._sequences[key] = max(self._sequences.get(key, 0), identity.seq + 1)
            self.record_id = past[-1].record_id + 1 if past else 0
            self.step, self.collective = step, collective
