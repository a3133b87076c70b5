"""The part of a recording that the timeline shows, by time or one by one: rows to cells and back. Draws nothing."""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

from prismdbg.model.labels import stride
from prismdbg_tui.drawing import figures
from prismdbg_tui.timeline.axis import View, make_axis, whole
from prismdbg_tui.timeline.recording import Recording


class VisibleRange:
    """`cells` wide: set by whoever draws it."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.axis = make_axis(recording, by_time=True)
        self.view = whole(self.axis)
        self.cells = 1

    def show(self, row: int) -> None:
        if row < len(self.axis.begin):
            self.view = self.view.showing(float(self.axis.begin[row]), self.axis)

    def zoom(self, factor: float, around_row: int | None = None, around_cell: int | None = None) -> None:
        """0: everything."""
        if not len(self.axis.begin):
            return
        if not factor:
            self.view = whole(self.axis)
            return
        if around_cell is not None:
            around = self.position(around_cell)
        else:
            around = float(self.axis.begin[min(around_row or 0, len(self.axis.begin) - 1)])
        self.view = self.view.zoomed(factor, around, self.axis)

    def pan(self, share: float) -> None:
        self.view = self.view.panned(share, self.axis)

    def change_axis(self) -> None:
        """By time, or by number; the same collectives stay in view as far as that can be."""
        seen = self.axis.rows(self.view.start, self.view.start + self.view.span)
        everything = self.view.span >= whole(self.axis).span * 0.999
        self.axis = make_axis(self._recording, by_time=not self.axis.by_time)
        first, last = seen.start, max(min(seen.stop, len(self._recording)) - 1, 0)
        if everything or not len(self._recording):
            self.view = whole(self.axis)
        else:
            start, stop = float(self.axis.begin[first]), float(self.axis.end[last])
            self.view = View(start, max(stop - start, 1.0)).kept(self.axis)

    @property
    def described(self) -> str:
        seen = min(self.view.span, self.axis.span)
        if self.axis.by_time:
            return f"{figures.duration(seen)}, by time"
        return f"{figures.plural(ceil(seen), 'collective')}, one by one"

    def cell(self, position: float) -> int:
        """-1 or the number of cells where it lies outside."""
        cell = int(((position - self.view.start) / self.view.span) * self.cells // 1)
        return min(max(cell, -1), self.cells)

    def position(self, cell: int) -> float:
        return self.view.start + (max(cell, 0) + 0.5) / self.cells * self.view.span

    def begin(self, row: int) -> int:
        return self.cell(float(self.axis.begin[row])) if 0 <= row < len(self.axis.begin) else self.cells

    def end(self, row: int) -> int:
        return self.cell(float(self.axis.end[row])) if 0 <= row < len(self.axis.end) else self.cells

    def nearest(self, cell: int, rows: NDArray[np.int64] | None) -> int:
        """The row that begins nearest to a cell; of `rows`, where there are any."""
        some = rows is not None and len(rows)
        begin = self.axis.begin[rows] if some else self.axis.begin
        at = int(np.abs(begin - self.position(cell)).argmin())
        return int(rows[at]) if rows is not None and some else at

    def ticks(self) -> dict[int, str]:
        """Steps' numbers by cell, as many as are legible."""
        steps, begin = self._recording.columns.step, self.axis.begin
        part = self.axis.rows(self.view.start, self.view.start + self.view.span)
        if part.stop <= part.start:
            return {}
        first, last = int(steps[part.start]), int(steps[min(part.stop, len(steps)) - 1])
        every = stride((last - first + 1) / max(self.cells // 8, 1))
        ticks: dict[int, str] = {}
        free = 0
        for step in range(first - first % every, last + 1, every):
            row = int(np.searchsorted(steps, step))
            cell = self.cell(float(begin[row])) if row < len(begin) else -1
            if free <= cell < self.cells - len(str(step)):
                ticks[cell] = str(step)
                free = cell + len(str(step)) + 2
        return ticks
