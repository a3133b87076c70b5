"""Lines of the time line from a painted image: glyphs and colours, no state of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
from rich.segment import Segment
from rich.style import Style

from prismdbg_tui.colors import faded, readable
from prismdbg_tui.families import FAMILIES, NONFINITE
from prismdbg_tui.lanes_image import LanesImage

_LEVELS = " ▁▂▃▄▅▆▇█"
_FUTURE = 0.6  # how far what is to come fades into the background
_OUTSIDE = 0.72  # and what lies outside the capsule's A to B
Cell = tuple[str, Style]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    """Cells of one drawing: where the present is, the cursor, A and B; and the theme's colours."""

    background: str
    text: str
    accent: str
    dark: bool
    colorless: bool
    present: int
    cursor: int
    first: int
    beyond: int


def lane_cells(image: LanesImage, lane: int, part: int, parts: int, paint: Paint) -> list[Cell]:
    """One of the `parts` lines of a lane, the uppermost first."""
    family, covered = image.family[lane].tolist(), image.covered[lane].tolist()
    nonfinite = image.nonfinite[lane].tolist()
    below = parts - 1 - part
    cells = []
    for cell, share in enumerate(covered):
        glyph = _LEVELS[min(max(-int(-share * 8 * parts // 1) - 8 * below, 0), 8)]
        color = family_color(family[cell], nonfinite[cell] and below == 0, paint, cell)
        if paint.colorless and glyph == "█" and below == 0:
            glyph = "!" if nonfinite[cell] else FAMILIES[family[cell]].letter
        cells.append((glyph, style(color, paint.background)))
    _write_labels(cells, image, lane, part, paint)
    if 0 <= paint.cursor < len(cells):
        glyph, under = cells[paint.cursor]
        cells[paint.cursor] = ("┃", style(paint.accent, _ground(glyph, under, paint)))
    return cells


def family_color(number: int, nonfinite: bool, paint: Paint, cell: int) -> str:
    color = NONFINITE[0 if paint.dark else 1] if nonfinite else FAMILIES[number].color(paint.dark)
    if not paint.first <= cell <= paint.beyond:
        return faded(color, paint.background, _OUTSIDE)
    return faded(color, paint.background, _FUTURE) if cell > paint.present else color


def _ground(glyph: str, under: Style, paint: Paint) -> str:
    return under.color.name if glyph == "█" and under.color is not None else paint.background


def _write_labels(cells: list[Cell], image: LanesImage, lane: int, part: int, paint: Paint) -> None:
    if part != 0:
        return
    for label in image.labels:
        if label.lane == lane:
            for offset, character in enumerate(label.text):
                color = family_color(int(image.family[lane][label.cell + offset]), False, paint, label.cell + offset)
                cells[label.cell + offset] = (character, style(readable(color), color, bold=True))


def ruler_cells(ticks: dict[int, str], width: int, paint: Paint) -> list[Cell]:
    """A line that is whole from A to B, with the steps' numbers."""
    quiet = style(faded(paint.text, paint.background, 0.6), paint.background)
    loud = style(faded(paint.text, paint.background, 0.2), paint.background)
    cells = [("─" if paint.first <= cell <= paint.beyond else "┄", quiet) for cell in range(width)]
    for cell, text in ticks.items():
        for offset, character in enumerate(f"╷{text}"):
            if cell + offset < width:
                cells[cell + offset] = (character, loud)
    return cells


def mark_cells(image: LanesImage, first_nonfinite: int, here: int, width: int, paint: Paint) -> list[Cell]:
    """A and B, NaN and Inf, where the rank stands, and the cursor; the later covers the earlier."""
    red = NONFINITE[0 if paint.dark else 1]
    quiet = style(faded(paint.text, paint.background, 0.45), paint.background)
    cells: list[Cell] = [(" ", quiet)] * width
    for cell in np.flatnonzero(image.nonfinite.any(axis=0)).tolist():
        cells[cell] = ("·", style(red, paint.background))
    for cell, letter in ((paint.first, "A"), (paint.beyond, "B")):
        if 0 <= cell < width:
            cells[cell] = (letter, style(paint.text, paint.background, bold=True))
    if 0 <= first_nonfinite < width:
        cells[first_nonfinite] = ("✕", style(red, paint.background, bold=True))
    if 0 <= paint.cursor < width:
        cells[paint.cursor] = ("▲", style(paint.accent, paint.background, bold=True))
    if 0 <= here < width:
        cells[here] = ("◆", style(paint.accent, paint.background, bold=True))
    return cells


def segments(cells: list[Cell]) -> list[Segment]:
    return [Segment("".join(c for c, _ in run), look) for look, run in groupby(cells, key=lambda cell: cell[1])]


@lru_cache(maxsize=4096)
def style(color: str, background: str, bold: bool = False) -> Style:
    return Style(color=color, bgcolor=background, bold=bold)
