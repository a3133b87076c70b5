"""Live memory over the trace, with as many points as can be drawn. No peak is lost: each point has its extremes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismdbg.memory.peak import levels_of, stretch
from prismdbg.memory.trace import Ints, MemoryTrace
from prismdbg.model.moment import Moment
from prismdbg.model.step_parts import step_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Point i covers the rows from `rows[i]` to before the next; low and high are the extremes in between.

    step_points: (step, point) where each step begins. end: the latest moment that the last point covers. is_least:
    there may have been more, older than the trace.
    """

    trace: MemoryTrace
    rows: Ints
    low_bytes: Ints
    high_bytes: Ints
    step_points: tuple[tuple[int, int], ...]
    end: Moment
    is_least: bool

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def peak_point(self) -> int:
        return int(np.argmax(self.high_bytes))

    def moment(self, point: int) -> Moment:
        return self.trace.moment(int(self.rows[point]))

    def point_at(self, moment: Moment) -> int:
        """The point that covers `moment`."""
        return max(0, int(np.searchsorted(self.rows, self.trace.row_at(moment), side="right")) - 1)


def curve(
    trace: MemoryTrace,
    points: int = 200,
    begin: Moment | None = None,
    end: Moment | None = None,
    *,
    made_inside: bool = False,
    with_backend: bool = False,
) -> Curve:
    """Events are spaced evenly, not time: a step looks like the next one, however long the rank stood between. At most
    `points`, in each step at the same places (`step_parts`). made_inside: as for a `peak`."""
    first, beyond = stretch(trace, begin, end)
    is_least = not (made_inside or trace.is_whole)
    if beyond <= first:
        none = np.zeros(0, dtype=np.int64)
        return Curve(
            trace=trace,
            rows=none,
            low_bytes=none,
            high_bytes=none,
            step_points=(),
            end=trace.end,
            is_least=is_least,
        )
    levels = levels_of(trace, first, beyond, made_inside=made_inside, with_backend=with_backend)
    step_rows = _step_rows(trace, first, beyond)
    starts = np.array(step_parts((step_rows - first).tolist(), beyond - first, max(points, 1)), dtype=np.int64)
    rows = starts + first
    return Curve(
        trace=trace,
        rows=rows,
        low_bytes=np.minimum.reduceat(levels, starts),
        high_bytes=np.maximum.reduceat(levels, starts),
        step_points=_steps(trace, step_rows, rows),
        end=trace.latest(beyond),
        is_least=is_least,
    )


def _step_rows(trace: MemoryTrace, first: int, beyond: int) -> Ints:
    """Where each step begins."""
    steps = np.maximum.accumulate(trace.step[first:beyond])
    begins: Ints = np.flatnonzero(np.diff(steps, prepend=steps[0] - 1)) + first
    return begins


def _steps(trace: MemoryTrace, begins: Ints, rows: Ints) -> tuple[tuple[int, int], ...]:
    points = np.maximum(np.searchsorted(rows, begins, side="right") - 1, 0)
    return tuple((int(trace.step[row]), int(point)) for row, point in zip(begins, points, strict=True))
