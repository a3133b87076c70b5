"""JSON lines over a stream socket: one object a line, at most `MAX_LINE_BYTES`.

A client sends requests; the agent answers each with one reply that carries its `id`, in any order, and sends events
(no `id`) when something happens. A line that is not such an object ends the connection.

The program of a capsule may send anything on the agent's socket, so a client bounds what a line may become in memory.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import select
import socket
import time
from typing import Any, NoReturn

from prismdbg.errors import RankLost, WaitTimeout

MAX_LINE_BYTES = 16 << 20
SEND_S = 30.0  # in which the other end has to read a message
MAX_OBJECTS, MAX_VALUES, MAX_DEPTH = 200_000, 2_000_000, 60  # in one line; a list is an object, too
Message = dict[str, Any]

_MAY_BE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class InvalidMessage(RankLost):
    """The other end sent what is no message, or no such message: nothing that it says is believed any more."""


class PeerClosed(RankLost):
    """The other end was gone before anything was sent to it. What it sent before can still be received."""


class Connection:
    """One end of a socket. Sending is whole messages; receiving is bounded. One thread may send while another receives:
    each waits in poll(2) for as long as it may, because a socket's timeout would hold for both.

    last_bytes: the size of the last message that was received.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._buffer = bytearray()
        self.last_bytes = 0

    def send(self, message: Message, *, waits: bool = False) -> None:
        """Raises `PeerClosed` when the other end is gone, `RankLost` when it does not receive: it may have a part.
        waits: for as long as the other end is there."""
        data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        end = None if waits else time.monotonic() + SEND_S
        try:
            while data:
                data = data[self._send_some(data, end) :]
        except (BrokenPipeError, ConnectionResetError) as error:
            raise PeerClosed(f"the peer of the agent's socket has closed it: {error}") from error
        except (OSError, ValueError) as error:
            raise RankLost(f"the peer of the agent's socket has closed it: {error}") from error

    def _send_some(self, data: memoryview, end: float | None) -> int:
        with contextlib.suppress(BlockingIOError):
            return self._sock.send(data, socket.MSG_NOSIGNAL)  # a program may end of SIGPIPE
        if not self._is_ready(select.POLLOUT, None if end is None else end - time.monotonic()):
            raise RankLost(f"the other end of the agent's socket has not read for {SEND_S:g} s")
        return 0

    def _is_ready(self, for_what: int, left_s: float | None) -> bool:
        """Raises `ValueError` where it is closed."""
        poll = select.poll()
        poll.register(self._sock, for_what)
        return bool(poll.poll(None if left_s is None else max(math.ceil(left_s * 1000), 0)))

    def receive(self, timeout_s: float | None, what: str) -> Message:
        """The next message. `WaitTimeout` names `what` was waited for; `RankLost` when the other end closed.

        The bound is of the whole message: one that comes byte by byte does not last longer. What has come is kept.
        """
        began, searched = time.monotonic(), 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MAX_LINE_BYTES:
                raise InvalidMessage(f"received a line of more than {MAX_LINE_BYTES >> 20} MiB")
            spent_s = time.monotonic() - began
            if timeout_s is not None and spent_s > timeout_s:
                raise WaitTimeout(f"waited {timeout_s:g} s for {what}")
            self._fill(None if timeout_s is None else timeout_s - spent_s, what, timeout_s)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self.last_bytes = len(line)
        return parse_line(line)

    def _fill(self, left_s: float | None, what: str, timeout_s: float | None) -> None:
        try:
            if not self._is_ready(select.POLLIN, left_s):
                raise WaitTimeout(f"waited {timeout_s:g} s for {what}")
            data = self._sock.recv(1 << 16)
        except BlockingIOError:  # it is looked at again
            return
        except (OSError, ValueError) as error:
            raise RankLost(f"the connection broke while waiting for {what}: {error}") from error
        if not data:
            raise RankLost(f"the connection closed while waiting for {what}")
        self._buffer += data

    def end_sending(self) -> None:
        """The other end sees the end of what we send; what it sends still arrives."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def shut_down(self) -> None:
        """Both ends see the end of what was sent, also a thread that waits for it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._sock.close()


def parse_line(line: bytes) -> Message:
    """The message in a line. `InvalidMessage` for anything else, and for what would be too large or too deep; its texts
    can be encoded, its numbers are finite."""
    objects = line.count(b"{") + line.count(b"[")
    if objects > MAX_OBJECTS or line.count(b",") > MAX_VALUES:
        raise InvalidMessage(f"received a line with more than {MAX_OBJECTS} objects or {MAX_VALUES} values")
    try:
        message = json.loads(line.decode(), parse_constant=_no_constant, parse_float=_finite)
        if objects > MAX_DEPTH and _depth(message) > MAX_DEPTH:
            raise InvalidMessage(f"received JSON nested deeper than {MAX_DEPTH}")
        if _MAY_BE_SURROGATE.search(line):
            message = json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(f"received invalid JSON: {str(error)[:200]}") from error
    if not isinstance(message, dict):
        raise InvalidMessage("received JSON that is not a message")
    return message


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    return value if math.isfinite(value := float(text)) else _no_constant(text[:40])


def _depth(value: object) -> int:
    """Of lists and objects in each other, level by level; no further than one above the bound."""
    level, depth = [value], 0
    while depth <= MAX_DEPTH:
        level = [item for each in level if isinstance(each, dict | list) for item in _items(each)]
        if not level:
            break
        depth += 1
    return depth


def _items(value: dict[str, Any] | list[Any]) -> Any:
    return value.values() if isinstance(value, dict) else value
