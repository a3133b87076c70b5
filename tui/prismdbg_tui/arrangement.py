"""Which panes are seen: all of them where there is room, one at a time where there is not or where one is maximised."""

from __future__ import annotations

from collections.abc import Sequence

from textual.screen import Screen

PANES = ("timeline", "collectives", "source", "stack", "values", "peers", "console", "output")
TITLES = ("Time line", "Collectives", "Source", "Stack", "Values", "Peers", "Console", "Output")
_BOXES = {
    "talk": ("console", "output"),
    "left": ("collectives", "console", "output"),
    "right": ("source", "stack", "values", "peers"),
}
WIDE_COLUMNS = 110
WIDE_LINES = 32


def is_wide(width: int, height: int) -> bool:
    return width >= WIDE_COLUMNS and height >= WIDE_LINES


def seen(pane: str, *, wide: bool, maximised: bool, live: bool) -> Sequence[str]:
    """The panes on the screen while `pane` is the chosen one."""
    if maximised:
        return (pane,)
    if wide:
        return PANES if live else PANES[:-1]  # nothing runs, nothing is printed
    return ("timeline", pane if pane != "timeline" else "collectives")


def timeline_height(lanes: int, *, wide: bool, lines: int) -> int:
    """Frame, ruler and marks, and what the lanes need, as far as there is room."""
    if not wide:
        return 4 + min(max(lanes, 1), max((lines - 16) // 2, 1), 4) * (2 if lanes == 1 and lines >= 28 else 1)
    return 4 + min(2 * max(lanes, 1), max(lines // 5, 4))


def arrange(screen: Screen[object], panes: Sequence[str], timeline_lines: int) -> None:
    for pane in PANES:
        screen.query_one(f"#{pane}").display = pane in panes
    for box, inside in _BOXES.items():
        screen.query_one(f"#{box}").display = any(pane in panes for pane in inside)
    screen.query_one("#body").display = any(pane != "timeline" for pane in panes)
    screen.query_one("#timeline").styles.height = "1fr" if tuple(panes) == ("timeline",) else timeline_lines
