"""The line of the timeline with a sensor's readings: a bar for each cell."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prismdbg_tui.drawing.colors import faded
from prismdbg_tui.timeline.lanes_drawing import LEVELS, Cell, Paint, style
from prismdbg_tui.timeline.sensor_row import Floats, SensorRow
from prismdbg_tui.timeline.visible_range import VisibleRange


def times_of_cells(stretch: VisibleRange, begun_ns: NDArray[np.int64]) -> Floats:
    """Where each cell of the timeline begins, and where the last one ends, by the clock of the log."""
    edges = stretch.view.start + np.arange(stretch.cells + 1) / stretch.cells * stretch.view.span
    if stretch.axis.by_time:
        return edges + float(begun_ns.min())
    return np.interp(edges, np.arange(len(begun_ns)), begun_ns.astype(np.float64))


def sensor_cells(row: SensorRow, times_ns: Floats, paint: Paint) -> list[Cell]:
    """A bar for each cell, by the sensor's own scale from 0. A cell without readings is blank."""
    levels, most = row.level(times_ns[:-1], times_ns[1:]), row.most
    quiet = style(faded(paint.text, paint.background, 0.35), paint.background)
    cells = [(_bar(level, most), quiet) for level in levels.tolist()]
    if 0 <= paint.cursor < len(cells):
        cells[paint.cursor] = (cells[paint.cursor][0], style(paint.accent, paint.background, bold=True))
    return cells


def level_at(row: SensorRow, times_ns: Floats, cell: int) -> str:
    cell = min(max(cell, 0), len(times_ns) - 2)
    return row.said(float(row.level(times_ns[cell : cell + 1], times_ns[cell + 1 : cell + 2])[0]))


def _bar(level: float, most: float) -> str:
    if np.isnan(level):
        return " "
    return LEVELS[min(max(round(level / most * 8), 1 if level > 0 else 0), 8)]
