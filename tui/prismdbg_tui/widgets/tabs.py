"""The names of the panes in one line, where only one of them is seen at a time."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.widgets import Static

from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session.messages import PaneChosen
from prismdbg_tui.session.visible_panes import TITLES, key_of, panes

_SLIGHTLY = {"stops": "Breaks"}  # 80 columns hold all of them
_SHORT = _SLIGHTLY | {"collectives": "Calls", "memory": "Mem", "console": "Cons", "output": "Out"}
_AROUND = 4  # a digit, a space, two spaces after it


class Tabs(Static):
    def __init__(self, *, live: bool) -> None:
        super().__init__("", id="tabs")
        self._panes = [pane for pane in panes(live=live) if pane != "timeline"]
        self._chosen = ""

    def show(self, chosen: str) -> None:
        self._chosen = chosen
        accent = color(self.app, "accent")
        text = Text(no_wrap=True, overflow="ellipsis")
        for pane, title in self._titles():
            text.append(f"{key_of(pane)} {title}", f"bold reverse {accent}" if pane == chosen else "dim")
            text.append("  ")
        text.rstrip()
        self.update(text, layout=False)

    def on_resize(self) -> None:
        self.show(self._chosen)

    def on_click(self, event: events.Click) -> None:
        column = 0
        for pane, title in self._titles():
            column += len(title) + _AROUND
            if event.x < column:
                self.post_message(PaneChosen(pane))
                return

    def _titles(self) -> list[tuple[str, str]]:
        for short in ({}, _SLIGHTLY):
            titles = [(pane, short.get(pane, TITLES[pane])) for pane in self._panes]
            if sum(len(title) + _AROUND for _, title in titles) <= self.size.width + 2:
                return titles
        return [(pane, _SHORT.get(pane, TITLES[pane])) for pane in self._panes]
