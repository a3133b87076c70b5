"""Lines of the heat map from folded cells: what stands beside them, above them, and in them. No state of its own."""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style

from prismdbg.model.labels import labelled
from prismdbg_tui.drawing.colors import readable
from prismdbg_tui.overview.folding import Folded
from prismdbg_tui.overview.grid import Place
from prismdbg_tui.overview.job import Unit
from prismdbg_tui.overview.scale import LEVELS, Scale, amount, shade, tint
from prismdbg_tui.timeline.lanes_drawing import Cell, segments
from prismdbg_tui.timeline.lanes_drawing import style as style_of

RAN = "•"
CURSOR = "◆"
_GAP = 2  # characters between two coordinates above the map, at least
_ROOM_OF_NUMBER = 8  # characters a cell needs for its number


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The scale, which is of all ranks, not only of those that are seen; and the theme's colours."""

    scale: Scale
    unit: Unit
    background: str
    quiet: str
    accent: str
    dark: bool
    colorless: bool


def map_line(folded: Folded, line: int, cursor: Place | None, look: Look) -> list[Segment]:
    """One line of cells, without its title."""
    frame = folded.frame
    row, wrap = divmod(line // frame.cell_height, frame.wraps)
    if row >= frame.down:
        return []
    cells: list[Cell] = []
    for along in range(frame.across):
        column = wrap * frame.across + along
        if column >= frame.cells:
            break
        cells += _cell(folded, (row, column), line % frame.cell_height, (row, column) == cursor, look)
    return segments(cells)


def _cell(folded: Folded, cell: Place, part: int, is_cursor: bool, look: Look) -> list[Cell]:
    width = folded.frame.cell_width
    value = float(folded.values[cell])
    number = look.scale.level(value)
    middle = part == (folded.frame.cell_height - 1) // 2
    text = amount(value, look.unit) if width >= _ROOM_OF_NUMBER and middle else ""
    mark = CURSOR if is_cursor else RAN if folded.ran[cell] else ""
    if look.colorless:
        return _shaded(shade(number), width, text, mark if middle else "", is_cursor, look)
    ground = tint(number, look.dark)
    plain = style_of(readable(ground), ground, is_cursor)
    written = _written(" " * width, text, mark if middle else "")
    if is_cursor and width > 2:
        written = _framed(written)
    return [(character, plain) for character in written]


def _shaded(fill: str, width: int, text: str, mark: str, is_cursor: bool, look: Look) -> list[Cell]:
    plain = style_of(look.quiet, look.background)
    written = _written(fill * width, text, mark if width > 1 or is_cursor else "")
    chosen = plain + Style(reverse=True, bold=True) if is_cursor else plain
    return [(character, chosen) for character in written]


def _written(fill: str, text: str, mark: str) -> str:
    """The number in the middle, else the mark; both where there is room."""
    width = len(fill)
    said = f"{mark}{text}" if text and len(text) + len(mark) <= width else text or mark
    start = max((width - len(said)) // 2, 0)
    return (fill[:start] + said + fill[start + len(said) :])[:width]


def _framed(written: str) -> str:
    return f"▌{written[1:-1]}▐"


def row_title(folded: Folded, line: int, width: int) -> str:
    """Beside the first line of a row its coordinates; beside those it goes on over, from which column on."""
    frame = folded.frame
    if line % frame.cell_height:
        return ""
    row, wrap = divmod(line // frame.cell_height, frame.wraps)
    if row >= frame.down:
        return ""
    place = folded.place_of((row, wrap * frame.across))
    if not wrap and folded.grid.rows:
        return _said(folded.grid.row_at(place[0]), width)
    return _said(folded.grid.column_at(place[1]), width)


def _said(at: dict[str, int], width: int) -> str:
    """`pp 3 tp 1`, as much of it as fits, the end before the begin."""
    parts = [f"{name} {number}" for name, number in at.items()]
    text = " ".join(parts)
    return text if len(text) <= width else ".".join(str(number) for number in at.values())[-width:]


def ruler(folded: Folded) -> str:
    """Coordinates above the columns of the first line, of the outermost axis that makes them."""
    frame, grid = folded.frame, folded.grid
    if frame.wraps > 1 or not grid.columns:
        return ""
    name = grid.columns[0]
    places: list[tuple[int, int, str]] = []
    for cell in range(frame.cells):
        at = grid.column_at(folded.place_of((0, cell))[1])[name]
        if not places or at != places[-1][0]:
            places.append((at, cell * frame.cell_width, str(at) if cell else f"{name} {at}"))
    text = [" "] * frame.width
    for cell, label in labelled(places, len(text), _GAP).items():
        text[cell : cell + len(label)] = label
    return "".join(text)


def legend(look: Look, room: int) -> list[Cell]:
    """`0 ns ▇▇▇▇ 12 ms`; where levels are not as wide as each other with what stands in the middle."""
    scale = look.scale
    low, high = amount(scale.low, look.unit), amount(scale.high, look.unit)
    middle = f" {amount(scale.middle, look.unit)} " if scale.even else ""
    steps = min(max(room - len(low) - len(high) - len(middle) - 4, 6), LEVELS)
    quiet = style_of(look.quiet, look.background)
    cells: list[Cell] = [(character, quiet) for character in f"{low} "]
    for step in range(steps):
        if step == steps // 2:
            cells += [(character, quiet) for character in middle]
        number = round(step / max(steps - 1, 1) * (LEVELS - 1))
        if look.colorless:
            cells.append((shade(number), quiet))
        else:
            ground = tint(number, look.dark)
            cells.append((" ", style_of(readable(ground), ground)))
    return [*cells, *((character, quiet) for character in f" {high}")]
