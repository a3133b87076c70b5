"""A client of one rank's agent: capture, debugger and replay are all this."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Self

from prismdbg.errors import PrismError, RankLost, WaitTimeout, exit_code_of
from prismdbg.protocol.hello import Hello, unknown_verb
from prismdbg.protocol.wire import Connection, Message

Reach = Callable[[], AbstractContextManager[str]]
MAX_EVENTS = 1 << 20  # that nobody has taken


class AgentError(PrismError):
    """The agent understood the request and says why it cannot do it. `kind`: the error's class in the rank, which
    decides the exit code."""

    def __init__(self, message: str, *, hint: str = "", kind: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.exit_code = exit_code_of(kind)


class AgentClient:
    """Requests with bounded answers; events that arrive meanwhile are kept for `next_event`.

    reach: gives the address to connect to, where `path` is not to be trusted.
    """

    def __init__(self, path: Path, *, connect_timeout_s: float = 5.0, reach: Reach | None = None) -> None:
        self.path = path
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(connect_timeout_s)
        try:
            with reach() if reach is not None else nullcontext(str(path)) as address:
                sock.connect(address)
        except RankLost:
            sock.close()
            raise
        except OSError as error:
            sock.close()
            raise RankLost(
                f"no agent answers at {path}: {error.strerror or error}",
                hint="check the rank: its process has ended, or prismdbg did not start it",
            ) from error
        self._connection = Connection(sock)
        self._events: deque[Message] = deque()
        self._next_id = 0
        self.hello = Hello()

    def ask(self, verb: str, *, timeout_s: float = 30.0, **arguments: object) -> Message:
        """Sends one request and gives its reply. `AgentError` carries the agent's own words."""
        self._next_id += 1
        self._connection.send({"id": self._next_id, "do": verb, **arguments})
        deadline = time.monotonic() + timeout_s
        while True:
            left = max(deadline - time.monotonic(), 0.001)
            message = self._connection.receive(left, f"the agent's answer to {verb!r}")
            if "event" in message:
                self._keep(message)
            elif message.get("id") == self._next_id:
                if not message.get("ok"):
                    raise self._error(verb, message)
                return message

    def _keep(self, event: Message) -> None:
        if len(self._events) >= MAX_EVENTS:
            raise RankLost(f"the rank sent more than {MAX_EVENTS} unrequested events")
        self._events.append(event)

    def greet(self, timeout_s: float) -> None:
        """Learns of which time the other end is."""
        self.hello = Hello.parse(self.ask("hello", timeout_s=timeout_s))

    def _error(self, verb: str, message: Message) -> AgentError:
        text, hint = str(message.get("error", "the agent gave no reason")), str(message.get("hint", ""))
        if text == unknown_verb(verb) and self.hello.age:
            text = f"the recorder in the rank is {self.hello.age} than this prismdbg: it has no {verb!r}"
            hint = "use other commands, or capture the job again with this version"
        return AgentError(text, hint=hint, kind=str(message.get("kind", "")))

    def next_event(self, timeout_s: float | None, what: str) -> Message:
        """The next event, oldest first."""
        if self._events:
            return self._events.popleft()
        while True:
            message = self._connection.receive(timeout_s, what)
            if "event" in message:
                return message

    def leave(self, timeout_s: float = 10.0) -> list[Message]:
        """Closes when the agent has closed its end: nothing of the connection is left in the rank. Gives the events
        that nobody has taken."""
        self._connection.end_sending()
        try:
            while True:
                message = self._connection.receive(timeout_s, "the agent to end the connection")
                if "event" in message:
                    self._keep(message)
        except RankLost:
            return list(self._events)
        finally:
            self.close()

    def hear(self, events: Iterable[Message]) -> None:
        """Events of an earlier connection, to be taken before those of this one."""
        self._events.extendleft(reversed(list(events)))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect_when_ready(
    path: Path, *, bound_s: float, still_alive: Callable[[], bool], reach: Reach | None = None
) -> AgentClient:
    """Connects as soon as an agent answers at `path`; gives up after `bound_s` or when the rank ends."""
    deadline = time.monotonic() + bound_s
    while True:
        try:
            client = AgentClient(path, connect_timeout_s=2.0, reach=reach)
            try:
                client.greet(timeout_s=5.0)
                return client
            except PrismError:
                client.close()
                raise
        except (RankLost, WaitTimeout):
            if not still_alive():
                raise RankLost("the rank ended before its agent answered", hint="see the rank's output") from None
            if time.monotonic() > deadline:
                raise WaitTimeout(f"waited {bound_s:g} s for the rank's agent at {path}") from None
        time.sleep(0.02)
