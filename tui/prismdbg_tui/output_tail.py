"""What a file gained since one last looked, and what it lost: a rank that goes back takes its output with it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from textual.message import Message

from prismdbg_tui.messages import OutputCut, OutputGrew

MAX_BYTES = 64 << 10


class OutputTail:
    """Looked at by one thread, cut by another."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self._lock = threading.Lock()

    def news(self) -> list[Message]:
        """At most the newest `MAX_BYTES`."""
        with self._lock:
            return self._news()

    def _news(self) -> list[Message]:
        try:
            with self._path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                told: list[Message] = []
                if end < self._read_bytes:
                    told.append(OutputCut(end))
                    self._read_bytes = end
                start = max(self._read_bytes, end - MAX_BYTES)
                file.seek(start)
                data = file.read(end - start)
        except OSError:
            return []
        self._read_bytes = start + len(data)
        return [*told, OutputGrew(data, start)] if data else told

    def cut(self, length_bytes: int) -> Message:
        """The file was cut before anybody looked; what is written now begins there."""
        with self._lock:
            self._read_bytes = min(self._read_bytes, length_bytes)
        return OutputCut(length_bytes)
