"""Requests in the order in which they came, read by a thread of their own; a few are heeded at once, because the rank
may run for long."""

from __future__ import annotations

import queue
import threading

from prismdbg.dap.arguments import Request
from prismdbg.dap.client import Client
from prismdbg.dap.control import Control
from prismdbg.dap.framing import BrokenStream, MessageReader, NotAMessage
from prismdbg.errors import UsageError

MOVES = (
    "configurationDone", "continue", "next", "stepIn", "stepOut", "stepBack", "reverseContinue", "goto", "restart",
)  # fmt: skip
ENDS = ("disconnect", "terminate")
MOST_WAITING = 10_000


class Inbox:
    """`failed`: why no more can be read, where the client is there still."""

    def __init__(self, reader: MessageReader, client: Client, control: Control) -> None:
        self._reader, self._client, self._control = reader, client, control
        self._queue: queue.Queue[Request | None] = queue.Queue(MOST_WAITING)
        self.failed: BrokenStream | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name="prismdbg-dap-reader", daemon=True).start()

    def next(self, timeout_s: float) -> Request | None:
        """None where the client is gone. `queue.Empty` where nothing came in time."""
        return self._queue.get(timeout=timeout_s)

    def _run(self) -> None:
        try:
            while self._read_one():
                pass
        except OSError:
            pass  # as at the end: the client is gone
        except BrokenStream as error:
            self.failed = error
        self._control.close()
        self._queue.put(None)

    def _read_one(self) -> bool:
        message = None
        try:
            message = self._reader.next()
            if message is None:
                return False
            self._heed(Request.parse(message))
        except (NotAMessage, UsageError) as error:
            self._client.refuse(Request.unreadable(message or {}), error)
        return True

    def _heed(self, request: Request) -> None:
        if request.command == "pause":
            self._pause(request)
            return
        if request.command == "cancel":  # of a request it is none: each is answered soon, or moves the rank
            if request.arguments.has("progressId"):
                self._control.cancel()
            self._client.respond(request)
            return
        if request.command in MOVES:
            self._control.expects_move()
        self._queue.put(request)
        if request.command in ENDS:
            self._control.close()

    def _pause(self, request: Request) -> None:
        if self._control.pause():
            self._client.respond(request)
        else:
            self._client.refuse(request, UsageError("the rank is not running"))
