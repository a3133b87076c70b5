"""JSON lines over a stream socket: one object a line, at most `MAX_LINE_BYTES`.

A client sends requests; the agent answers each with one reply that carries its `id`, in any order, and sends events
(no `id`) when something happens. A line that is not such an object ends the connection.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import Any

from prismdbg.errors import RankLost, WaitTimeout

MAX_LINE_BYTES = 64 << 20
Message = dict[str, Any]


class Connection:
    """One end of a socket. Sending is whole messages; receiving is bounded. Not for use by two threads at once."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()

    def send(self, message: Message) -> None:
        """Raises `RankLost` when the other end is gone."""
        try:
            self._sock.settimeout(30)
            self._sock.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            raise RankLost(f"the peer of the agent's socket has closed it: {error}") from error

    def receive(self, timeout_s: float | None, what: str) -> Message:
        """The next message. `WaitTimeout` names `what` was waited for; `RankLost` when the other end closed.

        The bound is of the whole message: one that comes byte by byte does not last longer. What has come is kept.
        """
        began, searched = time.monotonic(), 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_LINE_BYTES:
                raise RankLost("received a line that is too long")
            spent_s = time.monotonic() - began
            if timeout_s is not None and spent_s > timeout_s:
                raise WaitTimeout(f"waited {timeout_s:g} s for {what}")
            self._fill(None if timeout_s is None else max(timeout_s - spent_s, 0.0001), what, timeout_s)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RankLost(f"received invalid JSON: {error}") from error
        if not isinstance(message, dict):
            raise RankLost("received JSON that is not a message")
        return message

    def _fill(self, left_s: float | None, what: str, timeout_s: float | None) -> None:
        self._sock.settimeout(left_s)
        try:
            data = self._sock.recv(1 << 16)
        except TimeoutError:
            raise WaitTimeout(f"waited {timeout_s:g} s for {what}") from None
        except OSError as error:
            raise RankLost(f"the connection broke while waiting for {what}: {error}") from error
        if not data:
            raise RankLost(f"the connection closed while waiting for {what}")
        self._buffer += data

    def end_sending(self) -> None:
        """The other end sees the end of what we send; what it sends still arrives."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._sock.close()
