"""Memory as areas: groups of blocks as boxes, in each the lines that made them. Text with colours; knows no widget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from rich.style import Style
from rich.text import Text

from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import faded, readable
from prismdbg_tui.drawing.wrapping import wrapped
from prismdbg_tui.memory.squares import Box, squares
from prismdbg_tui.memory.view import MemoryNode, largest_first

_INSIDE = (20, 4)  # cells from which on a box shows what it is made of, and has room for its own name in its first line
_STEPS = (0.0, 0.18, 0.36)  # neighbours are told apart
_CHILD = 0.3
_LEAST_CUT = 9  # cells: what is left of a name in fewer tells nothing
CHOSEN = "▶ "


@dataclass(frozen=True, slots=True, kw_only=True)
class MapInk:
    """`more`, `less`: in a difference, what came and what went. chosen: of the area under the cursor."""

    background: str
    block: str
    quiet: str
    more: str
    less: str
    chosen: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A group, or a part of one, and where it is drawn."""

    node: MemoryNode
    box: Box


def draw_map(
    nodes: Sequence[MemoryNode],
    width: int,
    height: int,
    ink: MapInk,
    *,
    signed: bool,
    chosen: MemoryNode | None = None,
) -> Text:
    """`height` lines. Each box has its label in its first line and ends with a gap, so that it is a box in any colours,
    also without; the chosen one has a sign before its label."""
    cells = [[(" ", Style())] * width for _ in range(height)]
    for number, placed in enumerate(placed_groups(nodes, width, height)):
        is_chosen = placed.node is chosen
        color = ink.chosen if is_chosen else color_of(placed.node, ink, number, signed=signed)
        parts = placed_parts(placed)
        _fill(cells, placed, color, signed=signed, sign=CHOSEN if is_chosen else "", is_whole=not parts)
        for place, part in enumerate(parts):
            shade = faded(color, ink.background, _CHILD + _STEPS[place % len(_STEPS)] / 2)
            _fill(cells, part, shade, signed=signed)
    lines = []
    for row in cells:
        line = Text(no_wrap=True, overflow="crop")
        for character, style in row:
            line.append(character, style)
        lines.append(line)
    return Text("\n").join(lines)


def placed_groups(nodes: Sequence[MemoryNode], width: int, height: int) -> list[Placed]:
    """Those that can be seen."""
    largest = largest_first(nodes)
    boxes = squares([abs(node.size_bytes) for node in largest], width, height)
    return [Placed(node, box) for node, box in zip(largest, boxes, strict=True) if not box.is_empty]


def placed_parts(group: Placed) -> list[Placed]:
    """Below the group's own line, where there is room."""
    box, parts = group.box, group.node.children
    if box.width < _INSIDE[0] or box.height < _INSIDE[1] or len(parts) < 2:
        return []
    inside = placed_groups(parts, box.width - 2, box.height - 2)
    return [
        Placed(part.node, Box(part.box.x + box.x + 1, part.box.y + box.y + 1, part.box.width, part.box.height))
        for part in inside
    ]


def node_at(nodes: Sequence[MemoryNode], width: int, height: int, x: int, y: int) -> MemoryNode | None:
    """What is drawn there, the innermost."""
    for group in placed_groups(nodes, width, height):
        for placed in (*placed_parts(group), group):
            if placed.box.covers(x, y):
                return placed.node
    return None


def label_of(node: MemoryNode, *, signed: bool) -> str:
    sign = ("+" if node.size_bytes >= 0 else "-") if signed else ""
    return f"{sign}{figures.size(abs(node.size_bytes))} {figures.clean(node.label)}"


def color_of(node: MemoryNode, ink: MapInk, number: int = 0, *, signed: bool) -> str:
    """`number`: of a neighbour that it is told apart from."""
    plain = ink.quiet if node.quiet else ink.block
    chosen = (ink.more if node.size_bytes >= 0 else ink.less) if signed else plain
    return faded(chosen, ink.background, _STEPS[number % len(_STEPS)])


def _fill(
    cells: list[list[tuple[str, Style]]],
    placed: Placed,
    color: str,
    *,
    signed: bool,
    sign: str = "",
    is_whole: bool = True,
) -> None:
    """All but the last column and line, where there are more. `is_whole`: all its lines are its own."""
    box = placed.box
    wide, high = max(box.width - 1, 1), max(box.height - 1, 1)
    labels = _labels(sign + label_of(placed.node, signed=signed), wide, high if is_whole else 1)
    style = Style(color=readable(color), bgcolor=color)
    for row in range(high):
        shown = labels[row].ljust(wide) if row < len(labels) else " " * wide
        cells[box.y + row][box.x : box.x + wide] = [(character, style) for character in shown]


def _labels(label: str, wide: int, high: int) -> list[str]:
    """The name in as many lines as there are, up to one that would be cut to very little; where not even
    a size has room there is nothing but the sign of the chosen one, because half a number reads as another one."""
    if len(label) <= wide:
        return [label]
    sign = CHOSEN if label.startswith(CHOSEN) else ""
    size = sign + " ".join(label.removeprefix(sign).split()[:2])
    if wide < len(size):
        return [sign.strip()[:wide]]
    return list(takewhile(bool, (_fitted(line, size, wide) for line in _lines(label, wide, high))))


def _fitted(line: str, size: str, wide: int) -> str:
    """The line with its name cut; the size is never cut."""
    if len(line) <= wide:
        return line
    begin = f"{size} " if line.startswith(size) else ""
    name, room = line[len(begin) :], wide - len(begin)
    return f"{begin}{_short_module(name, room) or _cut_name(name, room)}".rstrip()


def name_in(name: str, width: int) -> str:
    """As much of a name as fits: of a stack its ends, of a module the last parts."""
    if len(name) <= width:
        return name
    return _short_module(name, width) or figures.called(name, width)


def _short_module(name: str, width: int) -> str:
    """With the last parts of the module that it ends with; empty where it ends with none, or there is no room."""
    before, space, last = name.rpartition(" ")
    if "." not in last.strip(".") or ":" in last:
        return ""
    end = _end_of_path(last, width - len(before) - len(space))
    return f"{before}{space}{end}" if end else ""


def _cut_name(name: str, width: int) -> str:
    """Empty where too little of it would be left."""
    return figures.cut(name, width) if width >= _LEAST_CUT else ""


def _end_of_path(name: str, width: int) -> str:
    """Of `module.blocks.3.mlp` the last parts that fit: neighbours begin alike."""
    parts = name.split(".")
    ends = (f"…{'.'.join(parts[skip:])}" for skip in range(1, len(parts)))
    return next((end for end in ends if len(end) <= width), "") or _cut_name(parts[-1], width)


def _lines(label: str, wide: int, high: int) -> list[str]:
    """At most `high`; what is left is in the last one, however long."""
    pieces = wrapped(label, wide)
    return pieces if len(pieces) <= high else [*pieces[: high - 1], " ".join(map(str.strip, pieces[high - 1 :]))]
