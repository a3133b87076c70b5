"""Lines that are kept as they were said, so that another width or theme lays them out anew. Stays at the end."""

from __future__ import annotations

from collections import deque

from rich.text import Text
from textual import events
from textual.widgets import RichLog

from prismdbg_tui import figures
from prismdbg_tui.colors import color

MAX_LINES = 2000
_COLORS = {"asked": "accent", "error": "error"}


class TextLog(RichLog, can_focus=True):
    def __init__(self, name: str, classes: str = "") -> None:
        super().__init__(id=name, classes=classes, wrap=True, min_width=1, max_lines=2 * MAX_LINES)
        self._said: deque[tuple[str, str]] = deque(maxlen=MAX_LINES)
        self._laid_out = 0

    def say(self, text: str, kind: str = "said") -> None:
        """`kind`: said, asked, error or event; control characters are not passed on."""
        entry = (figures.clean(text), kind)
        self._said.append(entry)
        self.write(self._text(*entry))

    def take_back(self, count: int) -> None:
        """The last lines were never said."""
        for _ in range(min(count, len(self._said))):
            self._said.pop()
        if count:
            self.again()

    def again(self) -> None:
        self.clear()
        for entry in self._said:
            self.write(self._text(*entry), scroll_end=False)
        self.scroll_end(animate=False, immediate=True)

    def _text(self, text: str, kind: str) -> Text:
        if kind == "event":
            return Text(text, "dim")
        return Text(text, f"bold {color(self.app, _COLORS[kind])}" if kind in _COLORS else "")

    def on_resize(self, event: events.Resize) -> None:
        width = self.scrollable_content_region.width
        if width and width != self._laid_out:
            self._laid_out = width
            self.again()
