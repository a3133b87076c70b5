"""Which calls with NaN or Inf stay where most of a log is left out: of each run the first that sent some, and the first
that received some. A run ends with a step without any, and with one that a gradient scaler skipped: what comes after it
may have another cause."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np

from prismdbg.log.step_rows import Rows

_MOST_KEPT = 128
_OF_THE_FIRST = 2  # always kept


@dataclass(frozen=True, slots=True, order=True)
class NonfiniteCall:
    """In order of steps, then of time: when it was issued, or received."""

    step: int
    time_ns: int
    record_id: int
    has_sent: bool


@dataclass(slots=True)
class NonfiniteRuns:
    """Of one log, part by part."""

    _last_step: int = -2  # with some, of earlier parts; at first none, not even the one right before step 0
    _in_run: set[bool] = field(default_factory=set)  # in the run that goes on: calls that sent, and that received
    _kept: list[int] = field(default_factory=list)

    def of_part(
        self, calls: Iterable[NonfiniteCall], rows: Rows, skipped: Collection[int], *, all_stay: bool
    ) -> list[int]:
        """The record ids of those that stay. rows: of the part's steps. all_stay: it is of a summary."""
        bad = rows[rows["nonfinite"] > 0]
        found: list[int] = []
        step = self._last_step
        for call in sorted(calls):
            if call.step > step:
                before = call.step - 1
                if before in skipped or not (before == step or _covers(bad, before)):
                    self._in_run.clear()
                step = call.step
            if all_stay or call.has_sent not in self._in_run:
                found.append(call.record_id)
            self._in_run.add(call.has_sent)
        self._last_step = max(step, int(bad["last_step"].max(initial=0)) if len(bad) else -2)
        self._kept += dict.fromkeys(found)
        return found

    def no_longer(self) -> list[int]:
        """Those that stayed, and for which there are too many others by now."""
        many = len(self._kept) - _MOST_KEPT
        if many <= 0:
            return []
        gone = self._kept[_OF_THE_FIRST : _OF_THE_FIRST + many]
        del self._kept[_OF_THE_FIRST : _OF_THE_FIRST + many]
        return gone


def _covers(rows: Rows, step: int) -> bool:
    return bool(np.any((rows["first_step"] <= step) & (step <= rows["last_step"])))
