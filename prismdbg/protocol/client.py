"""A client of one rank's agent: capture, debugger and replay are all this.

The rank may be hostile: every message is checked here (`protocol.messages`), every wait ends at one deadline whatever
the rank sends meanwhile, and what is kept is bounded.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from prismdbg.errors import PrismError, RankLost, WaitTimeout, exit_code_of
from prismdbg.model.plain_text import one_line
from prismdbg.protocol.hello import RANK_RUNS, Hello, unknown_verb
from prismdbg.protocol.messages import checked_event, checked_reply
from prismdbg.protocol.wire import Connection, InvalidMessage, Message, PeerClosed

Heard = list[tuple[Message, int]]  # events that nobody has taken, with the size of each in bytes
Reach = Callable[[], AbstractContextManager[str]]
MAX_EVENTS, MAX_EVENT_BYTES = 1 << 17, 64 << 20  # that nobody has taken
MAX_TEXT = 10_000  # of an error
LOOK_S = 0.1


class AgentError(PrismError):
    """The agent understood the request and says why it cannot do it. `kind`: the error's class in the rank, which
    decides the exit code. `column`: where it is in the expression that was sent, from 0; None where it is of no such
    place, and of agents that do not tell it."""

    def __init__(self, message: str, *, hint: str = "", kind: str = "", column: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.column = column
        self.exit_code = exit_code_of(kind)


class UnknownRequest(AgentError):
    """The agent has no such request: it may be of another version."""


class RankRuns(AgentError):
    """The rank has to stand for such a request."""


class NotWaitedFor(PrismError):
    """Whoever asked did not want to wait any more. The reply is passed over when it comes."""


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
        self._events: deque[tuple[Message, int]] = deque()
        self._kept_bytes = 0
        self._next_id = 0
        self._asked: dict[int, str] = {}  # verbs by the number of their request, while no reply has come
        self.hello = Hello()

    def ask(
        self, verb: str, *, timeout_s: float = 30.0, given_up: Callable[[], bool] | None = None, **arguments: object
    ) -> Message:
        """Sends one request and gives its reply. `AgentError` carries the agent's own words; `NotWaitedFor` is raised
        soon after `given_up` says so."""
        self._next_id += 1
        number, what = self._next_id, f"the agent's answer to {verb!r}"
        with suppress(PeerClosed):  # an agent that accepts no client says why before it closes
            self._connection.send({"id": number, "do": verb, **arguments})
        self._asked[number] = verb
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._receive_unless(given_up, deadline, timeout_s, what)
            if "event" in message:
                self._keep(message)
            elif message["id"] == number:
                if not message.get("ok"):
                    raise self._error(verb, message)
                return message

    def _receive_unless(
        self, given_up: Callable[[], bool] | None, deadline: float, timeout_s: float, what: str
    ) -> Message:
        while given_up is not None:
            if given_up():
                raise NotWaitedFor(
                    f"the wait for {what} was cancelled",
                    hint="wait before you ask again: the rank may still work on it",
                )
            soon = min(time.monotonic() + LOOK_S, deadline)
            try:
                return self._receive(soon, timeout_s, what)
            except WaitTimeout:
                if soon >= deadline:
                    raise
        return self._receive(deadline, timeout_s, what)

    def _receive(self, deadline: float | None, timeout_s: float | None, what: str) -> Message:
        """The next message, an event or a reply to a request, also to one whose answer nobody waited for any more."""
        left_s = None if deadline is None else deadline - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise WaitTimeout(f"waited {timeout_s:g} s for {what}")
        try:
            message = self._connection.receive(left_s, what)
            return checked_event(message) if "event" in message else self._reply(message)
        except WaitTimeout:
            raise WaitTimeout(f"waited {timeout_s:g} s for {what}") from None
        except InvalidMessage:
            self.close()
            raise

    def _reply(self, message: Message) -> Message:
        """There is one to each request, and no other."""
        number = message.get("id")
        verb = self._asked.pop(number, None) if isinstance(number, int) else None
        if verb is None:
            raise InvalidMessage("the rank sent an answer to no request")
        return checked_reply(verb, message) if message.get("ok") else message

    def _keep(self, event: Message) -> None:
        size_bytes = self._connection.last_bytes
        self._kept_bytes += size_bytes
        if len(self._events) >= MAX_EVENTS or self._kept_bytes > MAX_EVENT_BYTES:
            self.close()
            raise InvalidMessage(
                f"the rank sent more than {MAX_EVENTS} events or {MAX_EVENT_BYTES >> 20} MiB of them at once"
            )
        self._events.append((event, size_bytes))

    def greet(self, timeout_s: float) -> None:
        """Learns of which time the other end is."""
        self.hello = Hello.parse(self.ask("hello", timeout_s=timeout_s))

    def _error(self, verb: str, message: Message) -> AgentError:
        text = one_line(str(message.get("error", "the agent gave no reason"))[:MAX_TEXT])
        hint = one_line(str(message.get("hint", ""))[:MAX_TEXT])
        kind = {unknown_verb(verb): UnknownRequest, RANK_RUNS: RankRuns}.get(text, AgentError)
        if kind is UnknownRequest and self.hello.age:
            text = f"the recorder in the rank is {self.hello.age} than this prismdbg: it has no {verb!r}"
            hint = "use other commands, or capture the job again with this version"
        column = message.get("column")
        return kind(text, hint=hint, kind=str(message.get("kind", "")), column=column if type(column) is int else None)

    def next_event(self, timeout_s: float | None, what: str) -> Message:
        """The next event, oldest first. `timeout_s` bounds the whole wait, whatever else the rank sends."""
        if self._events:
            event, size_bytes = self._events.popleft()
            self._kept_bytes -= size_bytes
            return event
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            message = self._receive(deadline, timeout_s, what)
            if "event" in message:
                return message

    def leave(self, timeout_s: float = 10.0) -> Heard:
        """Closes when the agent has closed its end: nothing of the connection is left in the rank. Gives the events
        that nobody has taken."""
        self._connection.end_sending()
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                message = self._receive(deadline, timeout_s, "the agent to end the connection")
                if "event" in message:
                    self._keep(message)
        except InvalidMessage:
            raise
        except RankLost:
            return list(self._events)
        finally:
            self.close()

    def hear(self, events: Heard) -> None:
        """Events of an earlier connection, to be taken before those of this one."""
        self._events.extendleft(reversed(events))
        self._kept_bytes += sum(size_bytes for _, size_bytes in events)

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
        except InvalidMessage:
            raise
        except (RankLost, WaitTimeout):
            if not still_alive():
                raise RankLost("the rank ended before its agent answered", hint="see the rank's output") from None
            if time.monotonic() > deadline:
                raise WaitTimeout(
                    f"waited {bound_s:g} s for the rank's agent at {path}",
                    hint="try again when the machine is less busy; the rank's output may say why it did not start",
                ) from None
        time.sleep(0.02)
