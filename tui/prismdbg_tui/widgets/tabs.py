"""The names of the panes in one line, where only one of them is seen at a time."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.widgets import Static

from prismdbg_tui.arrangement import PANES, TITLES
from prismdbg_tui.colors import color
from prismdbg_tui.messages import PaneChosen


class Tabs(Static):
    def __init__(self) -> None:
        super().__init__("", id="tabs")
        self._chosen = ""

    def show(self, chosen: str) -> None:
        self._chosen = chosen
        accent = color(self.app, "accent")
        text = Text(no_wrap=True)
        for pane, title in zip(PANES[1:], TITLES[1:], strict=True):
            text.append(f" {title} ", f"bold reverse {accent}" if pane == chosen else "dim")
        self.update(text)

    def on_click(self, event: events.Click) -> None:
        column = 0
        for pane, title in zip(PANES[1:], TITLES[1:], strict=True):
            column += len(title) + 2
            if event.x < column:
                self.post_message(PaneChosen(pane))
                return
