"""A step that lasts a multiple of what steps last: for a trigger, live, rank by rank."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

from prismdbg.capsule.log_reader import StepMark

HISTORY = 20
FEWEST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStep:
    """`median_ns` is of the steps before it."""

    step: int
    duration_ns: int
    median_ns: int

    @property
    def text(self) -> str:
        times = self.duration_ns / self.median_ns
        return f"step {self.step} took {self.duration_ns / 1e9:.2f} s, {times:.1f} times the median of those before"


class StepWatch:
    """One rank. The median is of the last HISTORY steps; nothing is said before FEWEST of them are known."""

    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._last: StepMark | None = None
        self._durations_ns: deque[int] = deque(maxlen=HISTORY)

    def feed(self, mark: StepMark) -> SlowStep | None:
        """A mark begins a step and ends the one before, which is judged here."""
        before, self._last = self._last, mark
        if before is None:
            return None
        duration_ns = mark.time_ns - before.time_ns
        usual_ns = round(median(self._durations_ns)) if len(self._durations_ns) >= FEWEST else 0
        self._durations_ns.append(duration_ns)
        if not usual_ns or duration_ns < self._factor * usual_ns:
            return None
        return SlowStep(step=before.step, duration_ns=duration_ns, median_ns=usual_ns)
