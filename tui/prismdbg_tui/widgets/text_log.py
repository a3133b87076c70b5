"""Lines that are kept as they were said, so that another width or theme lays them out anew. Stays at the end, or where
somebody has scrolled to."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from rich.text import Text
from textual import events
from textual.widgets import RichLog

from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.drawing.wrapping import wrapped

MAX_LINES = 2000
_COLORS = {"asked": "accent", "error": "error"}


class TextLog(RichLog, can_focus=True):
    def __init__(self, name: str, classes: str = "") -> None:
        super().__init__(id=name, classes=classes, wrap=True, min_width=1, max_lines=2 * MAX_LINES)
        self._said: deque[tuple[str, str]] = deque(maxlen=MAX_LINES)
        self._begins: deque[int] = deque(maxlen=MAX_LINES)  # of each entry, its first line
        self._laid_out = 0
        self._follows = True

    @property
    def lines_said(self) -> list[str]:
        return [text for text, _ in self._said]

    def say(self, text: str, kind: str = "said") -> None:
        """`kind`: said, asked, error, event, or table: its rows follow an empty line, and have a line each. Control
        characters are not passed on."""
        entry = (figures.clean(text), kind)
        self._said.append(entry)
        if not self._width:
            self._laid_out = 0  # nobody sees it: the next width lays everything out anew
            return
        self._begins.append(self._start_line + len(self.lines))
        self.write(self._text(*entry))

    def take_back(self, count: int) -> None:
        """The last lines were never said."""
        for _ in range(min(count, len(self._said))):
            self._said.pop()
        if count:
            self.again()

    @property
    def _width(self) -> int:
        """Columns for text; 0 while the pane is hidden."""
        return self.scrollable_content_region.width if self.is_on_screen else 0

    def again(self) -> None:
        if not self._width:
            self._laid_out = 0
            return
        above = -1 if self._follows else bisect_right(self._begins, self._start_line + int(self.scroll_y)) - 1
        self.clear()
        self._begins.clear()
        for entry in self._said:
            self._begins.append(self._start_line + len(self.lines))
            self.write(self._text(*entry), scroll_end=False)
        if 0 <= above < len(self._begins):
            line = self._begins[above] - self._start_line
            self.scroll_to(y=max(line, 0), animate=False, immediate=True, force=True)
        else:
            self.scroll_end(animate=False, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._follows = new_value >= self.max_scroll_y

    def _text(self, text: str, kind: str) -> Text:
        width = self._width
        text, gap, table = text.partition("\n\n") if kind == "table" else (text, "", "")
        text = "\n".join(piece for line in text.split("\n") for piece in wrapped(line, width))
        text += gap + figures.fitted_table(table, width)
        if kind == "event":
            return Text(text, "dim")
        return Text(text, f"bold {color(self.app, _COLORS[kind])}" if kind in _COLORS else "")

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)  # first: only then are lines laid out at once
        width = self._width
        if width and width != self._laid_out:
            self._laid_out = width
            self.again()
        elif self._follows:
            self.scroll_end(animate=False, immediate=True)
