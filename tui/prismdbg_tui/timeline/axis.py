"""The timeline's horizontal axis: where each collective begins and ends, and the part of it that is seen."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prismdbg_tui.timeline.recording import Recording

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`begin` and `end` of every row. by_time: nanoseconds since the first; else the row's own number.

    `begin_so_far` and `end_so_far` never fall, so that a part of the axis is found by halving.
    """

    by_time: bool
    begin: Floats
    end: Floats
    begin_so_far: Floats
    end_so_far: Floats

    @property
    def span(self) -> float:
        return max(float(self.end_so_far[-1]) if len(self.end) else 1.0, 1.0)

    def rows(self, start: float, stop: float) -> slice:
        """At least the rows that reach into a part of the axis."""
        first = int(np.searchsorted(self.end_so_far, start, side="left"))
        beyond = int(np.searchsorted(self.begin_so_far, stop, side="right"))
        return slice(first, max(first, beyond))


def make_axis(recording: Recording, by_time: bool) -> Axis:
    columns = recording.columns
    if by_time and len(columns):
        begin = (columns.begun_ns - columns.begun_ns.min()).astype(np.float64)
        open_ended = columns.ended_ns < 0  # a collective that never ended waits until the capsule was made
        stuck = open_ended & (np.arange(len(columns)) < recording.beyond)
        last = (recording.seen_until_ns if stuck.any() else recording.log_until_ns) - int(columns.begun_ns.min())
        end = np.where(open_ended, last, columns.ended_ns - columns.begun_ns.min()).astype(np.float64)
    else:
        begin = np.arange(len(columns), dtype=np.float64)
        end = begin + 0.85
    return Axis(
        by_time=by_time,
        begin=begin,
        end=np.maximum(end, begin),
        begin_so_far=np.maximum.accumulate(begin),
        end_so_far=np.maximum.accumulate(np.maximum(end, begin)),
    )


@dataclass(frozen=True, slots=True)
class View:
    """The part of an axis that is seen: from `start`, `span` long."""

    start: float
    span: float

    def zoomed(self, factor: float, around: float, axis: Axis) -> View:
        span = min(max(self.span * factor, 4.0 if not axis.by_time else 1000.0), whole(axis).span)
        share = (around - self.start) / self.span if self.span else 0.5
        return View(around - span * min(max(share, 0.0), 1.0), span).kept(axis)

    def panned(self, share: float, axis: Axis) -> View:
        return replace(self, start=self.start + share * self.span).kept(axis)

    def kept(self, axis: Axis) -> View:
        """Inside the whole."""
        all_of_it = whole(axis)
        span = min(self.span, all_of_it.span)
        start = min(max(self.start, all_of_it.start), all_of_it.start + all_of_it.span - span)
        return View(start, span)

    def showing(self, position: float, axis: Axis) -> View:
        """The same, or moved so that `position` is inside."""
        margin = self.span * 0.04
        if self.start + margin <= position <= self.start + self.span - margin:
            return self
        return View(position - self.span / 2, self.span).kept(axis)


def whole(axis: Axis) -> View:
    margin = axis.span * 0.01
    return View(-margin, axis.span + 2 * margin)
