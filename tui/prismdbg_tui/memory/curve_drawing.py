"""A curve of bytes as lines of blocks: the past bright, the future dim, peak, cursor and mark by their columns."""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from prismdbg.model.labels import labelled
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
    rows = max(height - 2, 1)
    low, high = _cells(curve.low_bytes, cells, least=True), _cells(curve.high_bytes, cells, least=False)
    top = max(high, default=0) or 1
    lines = [_marks(curve, cells, ink)]
    lines += [_row(low, high, top, rows, row, cells, curve, ink) for row in range(rows)]
    lines.append(_steps(curve, cells, ink))
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


def _cells(values: tuple[int, ...], cells: int, *, least: bool) -> list[int]:
    """As many as there are cells: no peak is lost, no valley filled."""
    pick = min if least else max
    count = len(values)
    return [
        pick(values[at * count // cells : max((at + 1) * count // cells, at * count // cells + 1)])
        for at in range(cells if count else 0)
    ]


def cell_of(point: int, curve: CurveView, cells: int) -> int:
    """The last cell that shows the point."""
    return min(((point + 1) * cells - 1) // max(len(curve.high_bytes), 1), cells - 1)


def point_of(cell: int, curve: CurveView, cells: int) -> int:
    return min(max(cell, 0) * len(curve.high_bytes) // max(cells, 1), max(len(curve.high_bytes) - 1, 0))


def _row(
    low: list[int], high: list[int], top: int, rows: int, row: int, cells: int, curve: CurveView, ink: CurveInk
) -> Text:
    text = Text()
    below = rows - 1 - row
    here, peak = cell_of(curve.here, curve, cells), cell_of(curve.peak, curve, cells)
    mark = None if curve.mark is None else cell_of(curve.mark, curve, cells)
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


def _marks(curve: CurveView, cells: int, ink: CurveInk) -> Text:
    """The peak's sign and its size, where they have room."""
    peak = cell_of(curve.peak, curve, cells)
    line = [" "] * cells
    shown = f"▼ peak {figures.size(curve.high_bytes[curve.peak])} at {curve.moments[curve.peak]}"
    start = peak if peak + len(shown) <= cells else max(peak - len(shown) + 1, 0)
    if start != peak:
        shown = f"{shown[2:]} ▼"
    line[start : start + len(shown)] = shown
    return Text("".join(line[:cells]), ink.peak)


def _steps(curve: CurveView, cells: int, ink: CurveInk) -> Text:
    line = ["─"] * cells
    places = [(step, cell_of(point, curve, cells), f"╷{step}") for step, point in curve.steps]
    for cell, label in labelled(places, cells, _GAP).items():
        line[cell : cell + len(label)] = label
    return Text("".join(line), ink.quiet)
