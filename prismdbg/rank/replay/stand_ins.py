"""Stand-ins for what a spawned rank shared with other processes, which are not there in a replay: queues, connections,
events, barriers, locks. A rank that was forked has the originals, without those who would set an event or come to a
barrier.

What the rank sends is dropped, and it waits for nobody. What others would have told it is not in the recording: asking
for it is an error.
"""

from __future__ import annotations

import gc
import io
import pickle
import threading
from contextlib import suppress
from functools import cache
from multiprocessing import connection, get_context, queues, synchronize
from typing import Any, NoReturn

from prismdbg.capsule.spawned import NOT_RECORDED

_MOST: int = vars(synchronize)["SEM_VALUE_MAX"]


class _Unpickler(pickle.Unpickler):
    """Makes stand-ins where the pickle has the originals."""

    def find_class(self, module: str, name: str) -> Any:
        function = _FUNCTIONS.get((module, name))
        found: Any = super().find_class(module, name)
        return function or (_stand_in(found) if isinstance(found, type) else found)


@cache
def _stand_in(found: type) -> type:
    """Of a class, one that says to be it; any other class itself."""
    for original, mixin in _MIXINS.items():
        if issubclass(found, original):
            return type(found.__name__, (mixin, found), {"__module__": found.__module__})
    return found


def _unknown(what: str) -> NoReturn:
    raise RuntimeError(f"{NOT_RECORDED}: {what}")


class _Queue:
    def __setstate__(self, state: object) -> None:
        """It has no pipe."""

    def put(self, obj: object, block: bool = True, timeout: float | None = None) -> None:
        """Dropped."""

    def get(self, block: bool = True, timeout: float | None = None) -> NoReturn:
        _unknown("what other processes put into a queue")

    def empty(self) -> NoReturn:
        _unknown("whether there is something in a queue")

    def qsize(self) -> NoReturn:
        _unknown("how much there is in a queue")

    def full(self) -> bool:
        return False

    def _nothing(self) -> None:
        pass

    close = join_thread = cancel_join_thread = join = task_done = _nothing


class _Connection(connection.Connection):
    """Its descriptor would be one of another file here."""

    def __init__(self) -> None:
        self._handle = None
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    def fileno(self) -> NoReturn:
        _unknown("the other end of a connection")

    def send(self, obj: object) -> None:
        """Dropped."""

    def send_bytes(self, buf: object, offset: int = 0, size: int | None = None) -> None:
        """Dropped."""

    def poll(self, timeout: float | None = 0.0) -> NoReturn:
        _unknown("what other processes sent over a connection")

    def recv(self) -> NoReturn:
        self.poll()

    def recv_bytes(self, maxlength: int | None = None) -> NoReturn:
        self.poll()

    def recv_bytes_into(self, buf: object, offset: int = 0) -> NoReturn:
        self.poll()


class _Lock:
    """A new one, which nobody holds. The pickle does not say the value of a semaphore: it is never used up."""

    def __setstate__(self: Any, state: tuple[int, int, int, str]) -> None:
        _, kind, most, _ = state
        value = most if most < _MOST else most // 2
        synchronize.SemLock.__init__(self, kind, value, most, ctx=get_context("fork"))


def _pass(timeout: float | None, what: str) -> None:
    """Of a wait without a bound it is known that it came to its end, if the program went on after it: its main thread
    does. A thread that waits beside it may have waited till the end."""
    if timeout is not None:
        _unknown(what)
    if threading.current_thread() is not threading.main_thread():
        threading.Event().wait()


class _Condition:
    def wait(self, timeout: float | None = None) -> bool:
        _pass(timeout, "whether other processes have notified a condition")
        return True

    def wait_for(self, predicate: Any, timeout: float | None = None) -> bool:
        return bool(predicate()) or _unknown("what other processes did before they notified a condition")

    def notify(self, n: int = 1) -> None:
        """There is nobody."""


class _Event:
    """It is set when this rank waits for it. Others may set and clear it at other times."""

    def __setstate__(self, state: object) -> None:
        self._is_known = False

    def set(self) -> None:
        self._is_known = True

    def clear(self) -> None:
        self._is_known = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_known:
            _pass(timeout, "whether other processes have set an event")
        self._is_known = True
        return True

    def is_set(self) -> bool:
        return self._is_known or _unknown("whether other processes have set an event")

    __repr__ = object.__repr__


class _Passed:
    """A barrier where all others are."""

    def wait(self: Any, timeout: float | None = None) -> int:
        last: int = self._parties - 1
        return last


class _Barrier(_Passed):
    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._parties = state[0]

    def reset(self) -> None:
        """There is nobody."""

    abort = reset
    n_waiting = 0
    broken = False


_MIXINS: dict[type, type] = {
    queues.Queue: _Queue,
    queues.SimpleQueue: _Queue,
    synchronize.SemLock: _Lock,
    synchronize.Condition: _Condition,
    synchronize.Event: _Event,
    synchronize.Barrier: _Barrier,
}
_FUNCTIONS = {
    ("multiprocessing.connection", "rebuild_connection"): lambda *_: _Connection(),
    ("multiprocessing.heap", "rebuild_arena"): lambda *_: None,  # the memory of a barrier
}


class _Awaited:
    """An event of a program that goes on as the rank: whoever sets it may be another rank."""

    def wait(self: Any, timeout: float | None = None) -> bool:
        is_main = threading.current_thread() is threading.main_thread()
        return True if timeout is None and is_main else synchronize.Event.wait(self, timeout)


class _Heard:
    """A connection of a program that goes on as the rank, whose other end its parent may have."""

    def _recv_bytes(self, maxsize: int | None = None) -> Any:
        try:
            return super()._recv_bytes(maxsize)  # type: ignore[misc]
        except EOFError:
            _unknown("what other processes sent over a connection")


_OF_A_FORKED_RANK: tuple[tuple[type, type], ...] = (
    (synchronize.Event, _Awaited),
    (synchronize.Barrier, _Passed),
    (connection.Connection, _Heard),
)


def wait_for_nobody() -> None:
    """From here on, the events and barriers that there are let pass who waits at them without a bound, and connections
    at their end say what is not known."""
    gc.unfreeze()  # a program may freeze what it has before it forks
    for found in gc.get_objects():
        for original, mixin in _OF_A_FORKED_RANK:
            if issubclass(of := type(found), original):
                with suppress(TypeError):  # of a class with slots of its own
                    found.__class__ = type(of.__name__, (mixin, of), {"__module__": of.__module__})


def load(file: io.BufferedIOBase) -> Any:
    """The next object in a file of pickles."""
    return _Unpickler(file).load()
