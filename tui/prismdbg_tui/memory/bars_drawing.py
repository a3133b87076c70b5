"""Memory as bars, one line a group, where the pane is too small for areas with names. Text with colours; knows no
widget."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import faded, readable
from prismdbg_tui.memory.treemap_drawing import CHOSEN, MapInk, color_of, name_in
from prismdbg_tui.memory.view import MemoryNode, largest_first

LEAST_FOR_AREAS = (84, 11)  # cells: in a smaller pane most names of a treemap are cut to nothing
_SHADE = 0.35  # names are read over a bar


def fits_areas(width: int, height: int) -> bool:
    return width >= LEAST_FOR_AREAS[0] and height >= LEAST_FOR_AREAS[1]


def draw_bars(
    nodes: Sequence[MemoryNode],
    width: int,
    height: int,
    ink: MapInk,
    *,
    signed: bool,
    chosen: MemoryNode | None = None,
) -> Text:
    """At most `height` lines, the largest first: size, share of all of them, name, over a bar that is as long as the
    share of the largest. The chosen one is seen and has a sign."""
    shown = largest_first(nodes)
    first = _first(shown, chosen, height)
    most = max((abs(node.size_bytes) for node in shown), default=0) or 1
    total = sum(abs(node.size_bytes) for node in shown) or 1
    lines = []
    for node in shown[first : first + height]:
        sign, size = "", figures.size(abs(node.size_bytes))
        if signed:
            sign = "+" if node.size_bytes >= 0 else "-"
        share = "" if signed else f"{figures.percent(abs(node.size_bytes) / total):>5}"
        opens = " ›" if node.children else ""
        text = f"{CHOSEN if node is chosen else '  '}{sign + size:>10}{share}  "
        text += name_in(figures.clean(node.label), max(width - len(text) - len(opens), 1))
        text = figures.cut(text, width - len(opens)).ljust(width - len(opens)) + opens
        color = ink.chosen if node is chosen else faded(color_of(node, ink, signed=signed), ink.background, _SHADE)
        full = max(round(abs(node.size_bytes) / most * width), 1)
        line = Text(no_wrap=True, overflow="crop")
        line.append(text[:full], Style(color=readable(color), bgcolor=color))
        lines.append(line.append(text[full:], Style(color=readable(ink.background))))
    return Text("\n").join(lines)


def bar_at(nodes: Sequence[MemoryNode], height: int, y: int, chosen: MemoryNode | None) -> MemoryNode | None:
    """What is drawn in that line."""
    shown = largest_first(nodes)
    at = _first(shown, chosen, height) + y
    return shown[at] if 0 <= y < height and at < len(shown) else None


def _first(shown: Sequence[MemoryNode], chosen: MemoryNode | None, height: int) -> int:
    """So that the chosen one is seen."""
    at = next((at for at, node in enumerate(shown) if node is chosen), 0)
    return max(at - height + 1, 0)
