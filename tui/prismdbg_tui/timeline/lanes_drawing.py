"""Lines of the timeline from a painted image: glyphs and colours, no state of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
from rich.segment import Segment
from rich.style import Style

from prismdbg_tui.drawing.colors import faded, readable
from prismdbg_tui.timeline.lanes_image import LanesImage
from prismdbg_tui.timeline.op_families import FAMILIES, NONFINITE

LEVELS = " ▁▂▃▄▅▆▇█"
WAITING = "▒"
START, END = "├", "┤"  # of the capsule
FEW_STOPS = 12
_FUTURE = 0.62  # how far what is to come fades into the background
_OUTSIDE = 0.72  # and what lies outside the capsule's A to B
Cell = tuple[str, Style]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paint:
    """Cells of one drawing: where the present is, the cursor, A and B; and the theme's colours.

    present: the last cell of the past; None where nothing runs and so nothing is to come.
    """

    background: str
    text: str
    accent: str
    good: str
    dark: bool
    colorless: bool
    present: int | None
    cursor: int
    first: int
    beyond: int

    @property
    def red(self) -> str:
        return NONFINITE[0 if self.dark else 1]


def lane_cells(image: LanesImage, lane: int, part: int, parts: int, paint: Paint) -> list[Cell]:
    """One of the `parts` lines of a lane, the uppermost first."""
    family, covered = image.family[lane].tolist(), image.covered[lane].tolist()
    waited, nonfinite = image.waited[lane].tolist(), image.nonfinite[lane].tolist()
    below = parts - 1 - part
    cells = []
    for cell, share in enumerate(covered):
        glyph = LEVELS[min(max(-int(-share * 8 * parts // 1) - 8 * below, 0), 8)]
        color = family_color(family[cell], nonfinite[cell] and below == 0, paint, cell)
        if glyph == "█" and waited[cell] > 0.5 and not (nonfinite[cell] and below == 0):
            glyph = WAITING
        elif paint.colorless and glyph == "█" and below == 0:
            glyph = "!" if nonfinite[cell] else FAMILIES[family[cell]].letter
        cells.append((glyph, style(color, paint.background)))
    _write_labels(cells, image, lane, part, paint)
    if 0 <= paint.cursor < len(cells):
        glyph, under = cells[paint.cursor]
        cells[paint.cursor] = ("┃", style(paint.accent, _ground(glyph, under, paint), bold=True))
    return cells


def family_color(number: int, nonfinite: bool, paint: Paint, cell: int) -> str:
    color = paint.red if nonfinite else FAMILIES[number].color(paint.dark)
    if not paint.first <= cell <= paint.beyond:
        return faded(color, paint.background, _OUTSIDE)
    return faded(color, paint.background, _FUTURE) if paint.present is not None and cell > paint.present else color


def _ground(glyph: str, under: Style, paint: Paint) -> str:
    return under.color.name if glyph == "█" and under.color is not None else paint.background


def _write_labels(cells: list[Cell], image: LanesImage, lane: int, part: int, paint: Paint) -> None:
    if part != 0:
        return
    for label in image.labels:
        if label.lane == lane:
            for offset, character in enumerate(label.text):
                cell = label.cell + offset
                color = family_color(int(image.family[lane][cell]), False, paint, cell)
                cells[cell] = (character, style(readable(color), color, bold=True))


def ruler_cells(ticks: dict[int, str], width: int, paint: Paint, identical: frozenset[int]) -> list[Cell]:
    """A line that is heavy as far as the replay came and green where that was compared and `identical`, whole from A
    to B, with the steps' numbers."""
    quiet = style(faded(paint.text, paint.background, 0.6), paint.background)
    loud = style(faded(paint.text, paint.background, 0.2), paint.background)
    past = style(paint.good, paint.background)
    cells: list[Cell] = []
    for cell in range(width):
        inside = paint.first <= cell <= paint.beyond
        if inside and paint.present is not None and cell <= paint.present:
            cells.append(("━", past if cell in identical else quiet))
        else:
            cells.append(("─" if inside else "┄", quiet))
    for cell, text in ticks.items():
        for offset, character in enumerate(f"╷{text}"):
            if cell + offset < width:
                cells[cell + offset] = (character, loud)
    return cells


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Cells of what is marked below the lanes; outside the drawing where it is not seen, -1 where there is none."""

    first_nonfinite: int = -1
    here: int = -1
    checkpoints: tuple[int, ...] = ()
    stops: tuple[int, ...] = ()


def mark_cells(image: LanesImage, marks: Marks, width: int, paint: Paint) -> list[Cell]:
    """Start and end moment, NaN and Inf, checkpoints, breakpoints, the rank, the cursor; later ones on top."""
    quiet = style(faded(paint.text, paint.background, 0.45), paint.background)
    cells: list[Cell] = [(" ", quiet)] * width

    def put(cell: int, glyph: str, color: str) -> None:
        if 0 <= cell < width:
            cells[cell] = (glyph, style(color, paint.background, bold=True))

    for cell in np.flatnonzero(image.nonfinite.any(axis=0)).tolist():
        cells[cell] = ("·", style(paint.red, paint.background))
    for cell, glyph in ((paint.first, START), (paint.beyond, END)):
        put(cell, glyph, paint.text)
    for cell in marks.checkpoints:
        put(cell, "◇", paint.good)
    for cell in marks.stops:
        put(cell, "●" if len(marks.stops) <= FEW_STOPS else "•", paint.red)
    put(paint.cursor, "▲", paint.accent)
    put(marks.here, "◆", paint.accent)
    put(marks.first_nonfinite, "✕", paint.accent if marks.first_nonfinite in (paint.cursor, marks.here) else paint.red)
    return cells


def segments(cells: list[Cell]) -> list[Segment]:
    return [Segment("".join(c for c, _ in run), look) for look, run in groupby(cells, key=lambda cell: cell[1])]


@lru_cache(maxsize=4096)
def style(color: str, background: str, bold: bool = False) -> Style:
    return Style(color=color, bgcolor=background, bold=bold)
