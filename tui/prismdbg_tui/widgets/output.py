"""What the rank prints. When it goes back, so does this."""

from __future__ import annotations

from collections import deque

from prismdbg_tui.widgets.text_log import MAX_LINES, TextLog

MAX_UNENDED = 4096


class Output(TextLog, can_focus=True):
    def __init__(self) -> None:
        super().__init__("output", classes="pane")
        self.border_title = "Output of the rank"
        self._rest = b""
        self._end_bytes = 0
        self._ends: deque[int] = deque(maxlen=MAX_LINES)  # of each line, where it ends in the output

    def add(self, data: bytes, start_bytes: int) -> None:
        """Whole lines; the rest waits for its end."""
        if start_bytes > self._end_bytes:
            self._line(f"... {start_bytes - self._end_bytes} bytes left out", start_bytes)
            self._rest = b""
        self._end_bytes = start_bytes + len(data)
        at = self._end_bytes - len(data) - len(self._rest)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_UNENDED:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            at += len(line) + 1
            self._line(line.decode("utf-8", "replace").rstrip("\r"), at)

    def cut(self, length_bytes: int) -> None:
        """Lines that were printed later were never printed."""
        gone = 0
        while self._ends and self._ends[-1] > length_bytes:
            self._ends.pop()
            gone += 1
        self._end_bytes = min(self._end_bytes, length_bytes)
        last = self._ends[-1] if self._ends else 0
        self._rest = self._rest[: max(length_bytes - last, 0)] if not gone else b""
        self.take_back(gone)

    @property
    def is_empty(self) -> bool:
        return not self._said

    def _line(self, text: str, end_bytes: int) -> None:
        self._ends.append(end_bytes)
        self.say(text)
