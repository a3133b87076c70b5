"""What a file gained since one last looked, and what it lost: a rank that goes back takes its output with it."""

from __future__ import annotations

import threading
from typing import Protocol

from textual.message import Message

from prismdbg_tui.session.messages import OutputCut, OutputGrew

MAX_BYTES = 64 << 10


class Output(Protocol):
    """What is needed of `runtime.rank_folder.Output`."""

    @property
    def size_bytes(self) -> int: ...

    def read(self, start: int, most_bytes: int) -> bytes: ...


class OutputTail:
    """Looked at by one thread, cut by another."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._read_bytes = 0
        self._lock = threading.Lock()

    def news(self) -> list[Message]:
        """At most the newest `MAX_BYTES`."""
        with self._lock:
            return self._news()

    def _news(self) -> list[Message]:
        end = self._output.size_bytes
        told: list[Message] = []
        if end < self._read_bytes:
            told.append(OutputCut(end))
            self._read_bytes = end
        start = max(self._read_bytes, end - MAX_BYTES)
        data = self._output.read(start, end - start)
        self._read_bytes = start + len(data)
        return [*told, OutputGrew(data, start)] if data else told

    def cut(self, length_bytes: int) -> Message:
        """The file was cut before anybody looked; what is written now begins there."""
        with self._lock:
            self._read_bytes = min(self._read_bytes, length_bytes)
        return OutputCut(length_bytes)
