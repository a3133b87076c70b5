"""The hang detector, fed by log folders: their names hold rank and attempt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from prismdbg.capsule.log.events import Event
from prismdbg.diagnosis.hang import NS_PER_S, HangDetector, HangReport
from prismdbg.jobs.capture.capture import PATIENT, Patience
from prismdbg.jobs.record.activity import Activity
from prismdbg.jobs.record.incidents import seconds
from prismdbg.jobs.storage.run_folder import attempt_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Why ranks of a node let those of others wait, and do not hang. busy: ranks that compute or wait for a CPU; held:
    from when to when ranks were held for an image, by CLOCK_MONOTONIC here."""

    busy: frozenset[int] = frozenset()
    held: tuple[tuple[int, int], ...] = ()


NO_DELAYS = Delays()


class HangWatch:
    """`bound` as in `--trigger hang=30s`; empty for none."""

    def __init__(self, bound: str) -> None:
        self._bound_s = seconds(bound) if bound else 0.0
        self._detector = HangDetector(int(self._bound_s * NS_PER_S)) if bound else None
        self._activity = Activity()
        # Somebody here may be quiet for long, for another reason than now.
        self._activity_for_others = Activity(newest_ns=int(self._bound_s * NS_PER_S) // 2)

    def feed(self, folder: str, event: Event) -> None:
        if self._detector is not None:
            self._detector.feed(int(folder.partition(".")[0]), event, attempt_of(folder))

    def died(self, folder: str) -> None:
        if self._detector is not None:
            self._detector.died(int(folder.partition(".")[0]), attempt_of(folder))

    @property
    def patience(self) -> Patience:
        """With a rank of which an image is to be taken: a hang must not be told later for it."""
        if not self._bound_s:
            return PATIENT
        return Patience(park_s=min(PATIENT.park_s, self._bound_s / 2), drain_s=min(PATIENT.drain_s, self._bound_s / 4))

    def has_gone_on(self, report: HangReport) -> bool:
        """Whether the collective has completed since, as far as the events that were fed say."""
        return self._detector is not None and self._detector.has_gone_on(report)

    def suspects(self, now_ns: int) -> bool:
        return self._detector is not None and self._detector.suspects(now_ns)

    def delays(self, now_ns: int, pids: Mapping[int, int]) -> Delays:
        """Of the ranks that are followed here, for supervisors of other nodes whose ranks wait for them. What `pids` do
        is looked at while one of them issues nothing."""
        if self._detector is None:
            return NO_DELAYS
        held = tuple(self._detector.held(now_ns))
        if not self._detector.is_anyone_quiet(now_ns):
            self._activity_for_others.forget()
            return Delays(held=held)
        busy = self._activity_for_others.look(time.monotonic_ns(), pids)
        return Delays(busy=self._detector.holding_up(busy, now_ns), held=held)

    def due(
        self, now_ns: int, pids: Mapping[int, int], elsewhere: Callable[[], Delays] = Delays
    ) -> tuple[list[HangReport], list[HangReport]]:
        """Hangs, and waits that are only long so far. now_ns: before the events that were fed were read. `pids`: of the
        ranks that can be seen from here; what they do is looked at while somebody waits. elsewhere: asked once a wait
        is long for ranks of other nodes."""
        if self._detector is None:
            return [], []
        if not self._detector.suspects(now_ns):
            self._activity.forget()
            return [], []
        busy = self._activity.look(time.monotonic_ns(), pids)
        if self._detector.awaits_unknown(now_ns):
            told = elsewhere()
            self._detector.hold_elsewhere(told.held)
            busy = replace(busy, elsewhere=told.busy)
        return self._detector.due(now_ns, busy), self._detector.slow(now_ns, busy)
