"""Lines of the map of all ranks' time: glyphs and colours, no state of its own."""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style

from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import faded, readable
from prismdbg_tui.recorded_job.time_view import TimeView
from prismdbg_tui.timeline.lanes_drawing import LEVELS, Cell
from prismdbg_tui.timeline.lanes_drawing import style as style_of

CURSOR, COLUMN = "◆", "▼"  # in the map; above it
AWAITED, INSIDE, BETWEEN = "!", "░", "·"  # where there are no colours
_GAP = 12  # characters between two times above the map, at least
_MINUTE_NS = 60_000_000_000
_DAY_NS = 24 * 60 * _MINUTE_NS
_STEPS_NS = (  # between two times above the map
    *(step_ns for power in range(11) for factor in (1, 2, 5) if (step_ns := factor * 10**power) < _MINUTE_NS // 2),
    *(minutes * _MINUTE_NS for minutes in (1, 2, 5, 10, 20, 30, 60, 120, 240, 720)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The theme's colours as `#rrggbb`. between: of a rank that is outside of collectives."""

    background: str
    text: str
    between: str
    inside: str
    waiting: str
    awaited: str
    colorless: bool


def map_cells(view: TimeView, line: int, cursor: tuple[int, int], look: Look) -> list[Cell]:
    """One line of the map, of `view.height` a row; `cursor`: a row and a cell."""
    row, part = divmod(line, view.height)
    if row >= view.rows:
        return []
    cells = [_cell(view, row, cell, view.height - 1 - part, look) for cell in range(view.cells)]
    if row == cursor[0] and part == (view.height - 1) // 2:
        glyph, under = cells[cursor[1]]
        cells[cursor[1]] = (CURSOR, _over(glyph, under, look))
    return cells


def _cell(view: TimeView, row: int, cell: int, below: int, look: Look) -> Cell:
    """`below`: so many lines of the row."""
    inside, waiting = float(view.inside[row, cell]), float(view.waiting[row, cell])
    is_awaited = view.is_awaited(row, cell)
    bar = float(view.awaited[row, cell]) if is_awaited else waiting
    level = min(max(-int(-bar * 8 * view.height // 1) - 8 * below, 0), 8)
    if look.colorless:
        plain = style_of(look.text, look.background)
        empty = INSIDE if inside - waiting > 0.5 else BETWEEN if view.seen[row, cell] else " "
        return (AWAITED if is_awaited else LEVELS[level]) if level else empty, plain
    ground = _ground(max(inside - waiting, 0.0) / max(1.0 - bar, 0.01), bool(view.seen[row, cell]), look)
    return LEVELS[level], style_of(look.awaited if is_awaited else look.waiting, ground)


def _ground(inside: float, seen: bool, look: Look) -> str:
    """What the bar leaves free: between collectives, inside of them, or in both. Of 256 colours, the nearest ones to
    finer shares have hues that the legend does not have."""
    if not seen:
        return look.background
    return faded(look.between, look.inside, round(min(inside, 1.0) * 2) / 2)


def _over(glyph: str, under: Style, look: Look) -> Style:
    if look.colorless:
        return style_of(look.background, look.text, bold=True)
    ink = under.color if glyph in LEVELS[4:] else under.bgcolor
    ground = ink.name if ink is not None else look.background
    return style_of(readable(ground), ground, bold=True)


def row_title(view: TimeView, line: int) -> str:
    """Beside the first line of a row: its rank, or its ranks."""
    row, part = divmod(line, view.height)
    return "" if part or row >= view.rows else figures.ranks(tuple(each.rank for each in view.ranks_in(row)))


def ruler(lasted_ns: int, cells: int, cursor: int) -> str:
    """Times since the start of the job, and the cell of the cursor; a time that it would cover in part is left out."""
    text = [" "] * cells
    step_ns = _step_ns(lasted_ns * _GAP / max(cells, 1))
    for number in range(lasted_ns // step_ns + 1 if lasted_ns else 1):
        start, label = number * step_ns * cells // max(lasted_ns, 1), _time(number * step_ns)
        if start + len(label) <= cells and not start <= cursor <= start + len(label):
            text[start : start + len(label)] = label
    text[cursor] = COLUMN
    return "".join(text)


def _step_ns(least_ns: float) -> int:
    found = next((step_ns for step_ns in _STEPS_NS if step_ns >= least_ns), None)
    return found if found is not None else -(-round(least_ns) // _DAY_NS) * _DAY_NS


def _time(time_ns: int) -> str:
    """`0`, `20 s`, `2 min`, `12 h`."""
    if not time_ns:
        return "0"
    return figures.duration(time_ns).removesuffix(" 0 s").removesuffix(" 0 min").replace(".0 ", " ")


def legend(look: Look) -> str:
    """With Textual's markup."""
    if look.colorless:
        return f"{LEVELS[8]} waits  {AWAITED} others wait for it  {INSIDE} in a collective  {BETWEEN} between them"
    kinds = (
        (look.waiting, "waits"),
        (look.awaited, "others wait for it"),
        (look.inside, "in a collective"),
        (look.between, "between them"),
    )
    return "  ".join(f"[on {ink}]  [/] {text}" for ink, text in kinds)
