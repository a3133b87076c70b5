"""The lowest line: the keys that do something here, from the table of actions. A click does the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session.actions import ACTIONS, Action, unavailable

_ALWAYS = 2
_GAP = 2


class KeyBar(Static):
    class Pressed(Message):
        def __init__(self, action: str) -> None:
            self.action_name = action
            super().__init__()

    def __init__(self, keys: Mapping[str, str], *, live: bool, actions: Sequence[Action] = ACTIONS) -> None:
        super().__init__("", id="keys")
        self._keys = dict(keys)
        shown = [a for a in actions if a.footer and not unavailable(a, live=live)]
        self._all = [(a.name, f"{self._keys[a.name].split()[0]} ", a.footer) for a in shown]

        self._entries = self._all

    def on_mount(self) -> None:
        self.paint()

    def on_resize(self) -> None:
        self.paint()

    def _fitting(self) -> list[tuple[str, str, str]]:
        """All where there is room; what leads on (help, quit) always."""
        entries = list(self._all)
        while len(entries) > _ALWAYS and sum(len(key) + len(word) + _GAP for _, key, word in entries) > self.size.width:
            del entries[-_ALWAYS - 1]
        return entries

    def paint(self) -> None:
        self._entries = self._fitting()
        accent = color(self.app, "accent")
        text = Text(" ", no_wrap=True, overflow="ellipsis")
        for _, key, word in self._entries:
            text.append(key, f"bold {accent}")
            text.append(word + " " * _GAP, "dim")
        text.rstrip()
        self.update(text, layout=False)

    def on_click(self, event: events.Click) -> None:
        column = 1
        for name, key, word in self._entries:
            column += len(key) + len(word) + _GAP
            if event.x < column - 1:
                self.post_message(self.Pressed(name))
                return
