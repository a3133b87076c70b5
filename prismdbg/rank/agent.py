"""The thread in a rank that answers on a Unix socket; the same protocol in production and in a container.

It owns no knowledge: verbs are functions from a request's arguments to a reply. Each client has a thread of its own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prismdbg.errors import Defect, FacilityError, PrismError, RankLost, UsageError
from prismdbg.expr.place import ExpressionError
from prismdbg.protocol.hello import Hello, unknown_verb
from prismdbg.protocol.wire import Connection, Message, PeerClosed
from prismdbg.rank.amx_permission import AmxPermission
from prismdbg.settings.own_thread import start_own_thread

Verb = Callable[[Message], Message]
# The process or the machine has too much open, or a client was gone before it was answered.
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED, errno.EINTR)
_RETRY_S = 0.2
_SPARE_FILES = 16  # that clients leave to the program
IDLE_S = 15.0
MAX_CLIENTS = 32  # at once: each has a thread and a descriptor of the program's


def _why_refused(descriptor: int, clients: int) -> PrismError | None:
    """The program must be able to open files of its own: a kernel gives the lowest number that is free."""
    if clients >= MAX_CLIENTS:
        return RankLost(f"{clients} clients are connected to the rank, which is the limit", hint="end one of them")
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or descriptor < limit - _SPARE_FILES:
        return None
    return FacilityError(
        f"the rank's process may have {limit:,} open files, and prismdbg leaves the last {_SPARE_FILES} to the program",
        hint="raise the limit before you start it: `ulimit -n 1024`",
    )


def _refuse(connection: Connection, why: PrismError) -> None:
    """In answer to the client's first request, without waiting for it."""
    with contextlib.suppress(RankLost):
        connection.send(_failure(1, why))
    connection.close()


def _failure(number: object, error: PrismError) -> Message:
    """The client has the expression: it shows the place in it."""
    place = {"column": error.column} if isinstance(error, ExpressionError) else {}
    failure = {"kind": type(error).__name__, "error": error.bare, "hint": error.hint, **place}
    return {"id": number, "ok": False, **failure}


class Agent:
    """Serves verbs at a path until the process ends. `publish` sends an event to every client."""

    def __init__(
        self,
        path: Path,
        ended: Callable[[Exception], None] | None = None,
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended`: told why nobody can connect any more, where that is so before the process's end. `idle`: called
        whenever nobody has connected for `IDLE_S`."""
        self.path = path
        self.waits = False  # for clients that read slowly, as a rank does that lives for its debugger
        self._ended = ended
        self._idle = idle
        self.verbs: dict[str, Verb] = {"hello": lambda _: Hello().to_json()}
        self._clients: dict[int, tuple[Connection, threading.Lock]] = {}
        self._tiles = AmxPermission()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.set_inheritable(False)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._socket.listen(8)
        self._socket.setblocking(False)

    def start(self) -> None:
        start_own_thread("prismdbg-agent", self._listen)
        os.register_at_fork(after_in_child=self._let_go)

    def _let_go(self) -> None:
        """A forked child neither speaks to the clients nor keeps their connections from ending with the rank."""
        for connection, _ in self._clients.values():
            connection.close()
        self._clients = {}
        if self._is_ours():
            self._socket.close()
        else:
            self._socket.detach()

    def _is_ours(self) -> bool:
        """The program may close any descriptor, and have the number again for a file or a socket of its own. In a
        restored process our socket has another inode, but its name."""
        try:
            return bool(self._socket.getsockname() == str(self.path))
        except OSError:
            return False

    def _require_ours(self) -> None:
        if not self._is_ours():
            raise OSError(errno.EBADF, "the program has closed its socket")

    def publish(self, event: str, **data: Any) -> None:
        for number, (connection, lock) in list(self._clients.items()):
            try:
                with lock:
                    connection.send({"event": event, **data}, waits=self.waits)
            except PrismError:  # it may have half of the event: the next one would be none behind that
                self._clients.pop(number, None)
                connection.shut_down()

    def _listen(self) -> None:
        """Whatever ends this thread is no incident of the program: it can no longer be captured on request, no more."""
        try:
            self._accept()
        except Exception as error:
            if self._ended is not None:
                with contextlib.suppress(Exception):
                    self._ended(error)

    def _accept(self) -> None:
        """Waits in poll(2). A thread that waits in accept(2) holds the number of the next descriptor, and a program
        with one left would have none."""
        self._require_ours()
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while True:
            while not poll.poll(IDLE_S * 1000):
                self._idle()
            self._require_ours()
            try:
                client, _ = self._socket.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                time.sleep(_RETRY_S)  # who wants to connect waits in the socket's queue
                continue
            connection, lock = Connection(client), threading.Lock()
            if why := _why_refused(client.fileno(), len(self._clients)):
                _refuse(connection, why)
                continue
            self._clients[id(connection)] = connection, lock
            try:
                start_own_thread("prismdbg-client", self._serve, (connection, lock))
            except RuntimeError:  # the process has as many threads as it may have
                self._clients.pop(id(connection), None)
                connection.close()

    def _serve(self, connection: Connection, lock: threading.Lock) -> None:
        try:
            while True:
                message = connection.receive(None, "a request")
                self._tiles.keep()  # a rank is parked, dumped and released again by requests, whoever restored it
                reply = self._answer(message)
                # Who has left may have asked for more before: to release what it asked to park, when nobody answered.
                with lock, contextlib.suppress(PeerClosed):
                    connection.send(reply, waits=self.waits)
        except Exception:  # the client is gone, or what it sent is no message
            return
        finally:
            self._clients.pop(id(connection), None)
            connection.close()

    def _answer(self, message: Message) -> Message:
        number, name = message.get("id"), str(message.get("do"))
        verb = self.verbs.get(name)
        if verb is None:
            return {
                "id": number,
                "ok": False,
                "kind": UsageError.__name__,
                "error": unknown_verb(name),
                "hint": "verbs: " + ", ".join(sorted(self.verbs)),
            }
        try:
            return {"id": number, "ok": True, **verb(message)}
        except PrismError as error:
            return _failure(number, error)
        except Exception as error:
            defect = Defect.of(error)
            return _failure(number, Defect(f"{name} failed in the rank: {defect}", hint=defect.hint))
