"""A pane with a frame and a title that scrolls its text: stack, values, peers and stops are made of it."""

from __future__ import annotations

from rich.console import RenderableType
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from prismdbg_tui.drawing.colors import color
from prismdbg_tui.drawing.value_drawing import Ink


def fold(box: Widget) -> None:
    """A box in which all panes that are seen are empty needs no room either."""
    seen = [pane for pane in box.children if pane.display]
    box.set_class(bool(seen) and all(pane.has_class("-empty") for pane in seen), "-empty")


class Pane(VerticalScroll, can_focus=True):
    def __init__(self, name: str, title: str) -> None:
        super().__init__(id=name, classes="pane")
        self.border_title = title
        self.body = Static("", expand=True, markup=False)

    def compose(self) -> ComposeResult:
        yield self.body

    def put(self, content: RenderableType, note: str = "", *, is_empty: bool = False) -> None:
        """`note` stands in the frame's lower edge. is_empty: one line says so, and the pane takes no more room."""
        self.set_class(is_empty, "-empty")
        if isinstance(self.parent, Widget) and self.parent.id == "foot":
            fold(self.parent)
        self.body.update(content)
        self.border_subtitle = Content(note)

    def line_of(self, event: events.MouseEvent) -> int:
        """The line of the text under the mouse. The event may be told as the pane's or as its text's."""
        return event.screen_offset.y - self.content_region.y + self.scroll_offset.y

    @property
    def ink(self) -> Ink:
        return Ink(
            name=color(self.app, "accent"),
            quiet="dim",
            bad=color(self.app, "error"),
            good=color(self.app, "success"),
            bar=color(self.app, "primary"),
            width=max(self.size.width - 3, 20),  # a scrollbar, an indentation
        )
