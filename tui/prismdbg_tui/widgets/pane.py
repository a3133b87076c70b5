"""A pane with a frame and a title that scrolls its text: source, stack, values, peers and stops are made of it."""

from __future__ import annotations

from rich.console import RenderableType
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from prismdbg_tui.drawing.colors import color
from prismdbg_tui.drawing.value_drawing import Ink


class Pane(VerticalScroll, can_focus=True):
    def __init__(self, name: str, title: str) -> None:
        super().__init__(id=name, classes="pane")
        self.border_title = title
        self._body = Static("", expand=True)

    def compose(self) -> ComposeResult:
        yield self._body

    def put(self, content: RenderableType, note: str = "") -> None:
        """`note` stands in the frame's lower edge."""
        self._body.update(content)
        self.border_subtitle = note.replace("[", r"\[")

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
