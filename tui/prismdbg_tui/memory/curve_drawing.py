"""A curve of bytes as lines of blocks: the past bright, the future dim, peak, cursor and mark by their columns."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from prismdbg.model.labels import labelled
from prismdbg.model.step_parts import step_parts
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import faded
from prismdbg_tui.memory.view import CurveView

_LEVELS = " ▁▂▃▄▅▆▇█"
LABEL = 10
_GAP = 3  # cells between two steps' numbers, at least
_BETWEEN = 0.45  # how far the range between least and most fades


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveInk:
    background: str
    line: str
    peak: str
    accent: str
    quiet: str


def draw_curve(curve: CurveView, width: int, height: int, ink: CurveInk) -> Text:
    """`height` lines: marks, the curve, the steps; sizes on the left."""
    cells = max(width - LABEL, 1)
    begins = begins_of(curve, cells)
    rows = max(height - 2, 1)
    low, high = _cells(curve.low_bytes, begins, least=True), _cells(curve.high_bytes, begins, least=False)
    top = max(high, default=0) or 1
    lines = [_marks(curve, begins, cells, ink)]
    lines += [_row(low, high, top, rows, row, begins, curve, ink) for row in range(rows)]
    lines.append(_steps(curve, begins, ink))
    labels = [""] * len(lines)
    labels[1] = figures.size(top)
    if rows > 2:
        labels[rows] = "0 B"
    text = Text(no_wrap=True, overflow="crop")
    for label, line in zip(labels, lines, strict=True):
        text.append(f"{label:>{LABEL - 1}} ", ink.quiet)
        text.append_text(line)
        text.append("\n")
    text.rstrip()
    return text


def begins_of(curve: CurveView, cells: int) -> list[int]:
    """The first point of each cell; steps that are alike look alike, for which some cells may stay free at the end."""
    count = len(curve.high_bytes)
    if count <= cells:
        return [cell * count // cells for cell in range(cells)]
    return step_parts([point for _, point in curve.steps], count, cells)


def _cells(values: tuple[int, ...], begins: list[int], *, least: bool) -> list[int]:
    """One of each cell: no peak is lost, no valley filled."""
    pick = min if least else max
    ends = [*begins[1:], len(values)]
    return [pick(values[begin : max(end, begin + 1)]) for begin, end in zip(begins, ends, strict=True) if values]


def cell_of(point: int, begins: list[int]) -> int:
    """The last cell that shows the point."""
    return max(bisect_right(begins, point) - 1, 0)


def point_of(cell: int, begins: list[int]) -> int:
    return begins[min(max(cell, 0), len(begins) - 1)]


def _row(
    low: list[int], high: list[int], top: int, rows: int, row: int, begins: list[int], curve: CurveView, ink: CurveInk
) -> Text:
    text = Text()
    below = rows - 1 - row
    here, peak = cell_of(curve.here, begins), cell_of(curve.peak, begins)
    mark = None if curve.mark is None else cell_of(curve.mark, begins)
    for cell, most in enumerate(high):
        level = min(max(-(-most * 8 * rows // top) - 8 * below, 0), 8)
        filled = min(max(low[cell] * 8 * rows // top - 8 * below, 0), 8)
        color = ink.peak if cell == peak else ink.line
        if cell > here:
            color = faded(color, ink.background, 0.55)
        if filled < level:
            color = faded(color, ink.background, _BETWEEN)
        if cell in (here, mark):
            line = ink.accent if cell == here else ink.quiet
            ground = color if level == 8 else ink.background
            text.append("┃" if cell == here else "┆", Style(color=line, bgcolor=ground, bold=True))
        else:
            text.append(_LEVELS[level], Style(color=color))
    return text


def _marks(curve: CurveView, begins: list[int], cells: int, ink: CurveInk) -> Text:
    """The peak's sign and its size, where they have room."""
    peak = cell_of(curve.peak, begins)
    line = [" "] * cells
    shown = f"▼ peak {figures.size(curve.high_bytes[curve.peak])} at {curve.moments[curve.peak]}"
    start = peak if peak + len(shown) <= cells else max(peak - len(shown) + 1, 0)
    if start != peak:
        shown = f"{shown[2:]} ▼"
    line[start : start + len(shown)] = shown
    return Text("".join(line[:cells]), ink.peak)


def _steps(curve: CurveView, begins: list[int], ink: CurveInk) -> Text:
    line = ["─"] * len(begins)
    places = [(step, cell_of(point, begins), f"╷{step}") for step, point in curve.steps]
    for cell, label in labelled(places, len(begins), _GAP).items():
        line[cell : cell + len(label)] = label
    return Text("".join(line), ink.quiet)
