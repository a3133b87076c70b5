"""The lowest line: the keys that do something here, from the table of actions. A click does the same."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from prismdbg_tui.actions import ACTIONS, unavailable
from prismdbg_tui.colors import color


class KeyBar(Static):
    class Pressed(Message):
        def __init__(self, action: str) -> None:
            self.action_name = action
            super().__init__()

    def __init__(self, keys: Mapping[str, str], *, live: bool) -> None:
        super().__init__("", id="keys")
        self._keys = dict(keys)
        shown = [a for a in ACTIONS if a.footer and not unavailable(a, live=live, keys=self._keys)]
        self._entries = [(a.name, f"{self._keys[a.name].split()[0]} ", a.footer) for a in shown]

    def on_mount(self) -> None:
        self.paint()

    def paint(self) -> None:
        accent = color(self.app, "accent")
        text = Text(" ", no_wrap=True, overflow="ellipsis")
        for _, key, word in self._entries:
            text.append(key, f"bold {accent}")
            text.append(f"{word}   ", "dim")
        self.update(text)

    def on_click(self, event: events.Click) -> None:
        column = 1
        for name, key, word in self._entries:
            column += len(key) + len(word) + 3
            if event.x < column - 2:
                self.post_message(self.Pressed(name))
                return
