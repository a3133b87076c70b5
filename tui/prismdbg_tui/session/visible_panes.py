"""Which panes are seen: as many as there is room for; one where there is little, or where it is maximised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from textual.content import Content
from textual.screen import Screen

PANES = (
    "timeline", "collectives", "memory", "source", "stack", "values", "peers", "stops", "console", "output"
)  # fmt: skip
TITLES = dict(
    zip(
        PANES,
        ("Timeline", "Collectives", "Memory", "Source", "Stack", "Values", "Peers", "Breakpoints", "Console", "Output"),
        strict=True,
    )
)
_SHARED = (("collectives", "memory"), ("peers", "stops"), ("console", "output"))  # one place, one of them seen
_BOXES = {
    "talk": ("console", "output"),
    "foot": ("peers", "stops"),
    "left": ("collectives", "memory", "console", "output"),
    "right": ("source", "stack", "values", "peers", "stops"),
}
NUMBERED = PANES[1:]  # each has a digit as its key
LEAST_FOR_TIMELINE = 14  # lines of the terminal, where it stands above another pane
NO_OUTPUT = tuple(pane for pane in PANES if pane != "output")  # nothing runs, nothing is printed


class Room(IntEnum):
    NARROW = 0  # the timeline and one pane
    SNUG = 1  # of panes that share a place one is seen
    WIDE = 2  # console and output side by side, too
    AMPLE = 3  # everything


def room(width: int, height: int) -> Room:
    if width >= 180 and height >= 56:
        return Room.AMPLE
    if width >= 110 and height >= 32:
        return Room.WIDE if width >= 140 else Room.SNUG
    return Room.NARROW


@dataclass(frozen=True, slots=True, kw_only=True)
class VisiblePanes:
    """`pane` is the chosen one. `front`: of panes that share a place, which was chosen last."""

    pane: str = "collectives"
    front: frozenset[str] = frozenset({"collectives", "peers", "console"})
    maximised: bool = False

    def choosing(self, pane: str) -> VisiblePanes:
        front = self.front
        for place in _SHARED:
            if pane in place:
                front = front - set(place) | {pane}
        return VisiblePanes(pane=pane, front=front, maximised=self.maximised)

    def maximising(self) -> VisiblePanes:
        return VisiblePanes(pane=self.pane, front=self.front, maximised=not self.maximised)

    def seen(self, size: Room, *, live: bool, lines: int = LEAST_FOR_TIMELINE) -> Sequence[str]:
        """`lines` of the terminal."""
        if self.maximised or (size is Room.NARROW and lines < LEAST_FOR_TIMELINE):
            return (self.pane,)
        if size is Room.NARROW:
            return ("timeline", self.pane if self.pane != "timeline" else "collectives")
        places = {Room.SNUG: _SHARED, Room.WIDE: _SHARED[:-1]}.get(size, ())
        hidden = {pane for place in places for pane in place if pane not in self.front}
        return [pane for pane in panes(live=live) if pane not in hidden]


def key_of(pane: str) -> str:
    """`3`; empty for the timeline, which is always there."""
    return str(NUMBERED.index(pane) + 1) if pane in NUMBERED else ""


def numbered(pane: str, title: str) -> Content:
    """The title with its key. Nothing of it is read as markup."""
    return Content.assemble((key_of(pane), "dim"), f" {title}") if pane in NUMBERED else Content(title)


def panes(*, live: bool) -> Sequence[str]:
    return PANES if live else NO_OUTPUT


def behind(pane: str) -> str:
    """The pane that shares its place; empty where none does."""
    return next((other for place in _SHARED if pane in place for other in place if other != pane), "")


def timeline_height(lanes: int, size: Room, lines: int) -> int:
    """Frame, ruler and marks, and what the lanes need, as far as there is room."""
    if size is Room.NARROW:
        return 4 + min(max(lanes, 1), max((lines - 16) // 2, 1), 4) * (2 if lanes == 1 and lines >= 28 else 1)
    most = max(lines // 5, 4)
    return 4 + (2 * max(lanes, 1) if 2 * lanes <= most else min(lanes, most))


def arrange(screen: Screen[object], shown: Sequence[str], timeline_lines: int) -> None:
    for pane in PANES:
        screen.query_one(f"#{pane}").display = pane in shown
    for box, inside in _BOXES.items():
        screen.query_one(f"#{box}").display = any(pane in shown for pane in inside)
    screen.query_one("#body").display = any(pane != "timeline" for pane in shown)
    screen.query_one("#timeline").styles.height = "1fr" if tuple(shown) == ("timeline",) else timeline_lines
