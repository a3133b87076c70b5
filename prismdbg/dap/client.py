"""The client's end: responses and events sent in whole messages, from any thread."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from prismdbg.dap.arguments import Request
from prismdbg.dap.framing import encoded
from prismdbg.errors import PrismError, shortened

WRITE_BOUND_S = 30.0
_PIECE = 4096  # a pipe that can be written to takes as much at once
MAX_TEXT = 4000

Json = dict[str, Any]
Write = Callable[[bytes], None]


class Client:
    """`write` raises `OSError` where nobody reads any more; then `on_gone` is called, once, and nothing is sent."""

    def __init__(self, write: Write, on_gone: Callable[[], None]) -> None:
        self._write, self._on_gone = write, on_gone
        self._lock = threading.Lock()
        self._seq = 0
        self._is_gone = False

    def respond(self, request: Request, body: Json | None = None) -> None:
        self._answer(request, {"success": True, "body": body or {}})  # some clients refuse an answer without

    def refuse(self, request: Request, error: PrismError) -> None:
        text = shortened(with_hint(error), MAX_TEXT)
        # Where a value is shown, its error is, too: at each stop a watch expression would open a window beside.
        body = {"error": {"id": error.exit_code, "format": text, "showUser": request.command != "evaluate"}}
        self._answer(request, {"success": False, "message": text, "body": body})

    def event(self, name: str, body: Json | None = None) -> None:
        self._send({"type": "event", "event": name, "body": body or {}})

    def say(self, text: str, category: str = "console") -> None:
        """A line of its own in the client's console."""
        if text:
            self.event("output", {"category": category, "output": text if text.endswith("\n") else f"{text}\n"})

    def _answer(self, request: Request, rest: Json) -> None:
        self._send({"type": "response", "request_seq": request.seq, "command": request.command, **rest})

    def _send(self, message: Json) -> None:
        with self._lock:
            if self._is_gone:
                return
            self._seq += 1
            try:
                self._write(encoded({"seq": self._seq, **message}))
                return
            except OSError:
                self._is_gone = True
        self._on_gone()


def with_hint(error: PrismError) -> str:
    """The message is one line: an editor shows no caret below an expression."""
    return f"{error.bare}\ntry: {error.hint}" if error.hint else error.bare


def bounded_writer(descriptor: int, bound_s: float = WRITE_BOUND_S) -> Write:
    """Writes to a pipe or a socket; `OSError` also where nobody takes anything for `bound_s`."""

    def write(data: bytes) -> None:
        left = memoryview(data)
        end = time.monotonic() + bound_s
        while left:
            if not select.select([], [descriptor], [], max(end - time.monotonic(), 0.0))[1]:
                raise TimeoutError(f"the client took nothing for {bound_s:g} s")
            left = left[os.write(descriptor, left[:_PIECE]) :]
            end = time.monotonic() + bound_s

    return write
