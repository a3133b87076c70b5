"""Which steps the replayed program's gradient scalers skip, also for another optimizer than the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from prismdbg.capsule.log.format import StepSource
from prismdbg.model.moment import Moment
from prismdbg.rank.c10d.counters import Counters
from prismdbg.rank.recording.scaler_notes import Nobody

_FIRST = 0  # the optimizer with which steps end; the others have numbers from 1


class ScalerSkips(Nobody):
    """A `ScalerListener`. `tell`: gets the step's moment, the step that follows it, and how many steps in a row the
    optimizer was skipped in, of those in which it was due."""

    def __init__(self, counters: Counters, tell: Callable[[Moment, int, int], None]) -> None:
        self._counters, self._tell = counters, tell
        self._in_a_row: Counter[int] = Counter()

    def step_ends(self, begun: int, source: StepSource) -> None:
        """The present one, by the first optimizer."""
        if source is StepSource.SKIPPED_BY_SCALER:
            self._skips(self._counters.moment, begun, _FIRST)
        else:
            self.taken(_FIRST)

    def has_collectives(self) -> bool:
        return self._counters.collective > 0

    def skipped(self, step: int, optimizer: int) -> None:
        self._skips(Moment(step), max(self._counters.step, step + 1), optimizer)

    def taken(self, optimizer: int) -> None:
        del self._in_a_row[optimizer]

    def _skips(self, moment: Moment, begun: int, optimizer: int) -> None:
        self._in_a_row[optimizer] += 1
        self._tell(moment, begun, self._in_a_row[optimizer])
