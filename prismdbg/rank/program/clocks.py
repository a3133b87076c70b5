"""The clocks of `time`: one place that sees what each gives the program, and may give it something else.

Seen is what the main thread reads in code of the program and of packages. What Python itself, torch and prismdbg read
decides how long they wait and what they report, not what the program computes. Standard library only, for a program may
read a clock before it imports torch.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from _thread import get_ident
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

from prismdbg.capsule.log.clock_reads import CLOCKS

monotonic_s, wall_ns = time.monotonic, time.time_ns  # for our own code: nobody sees them
_localtime = time.localtime
_OF_NOW = {"localtime": 0, "gmtime": 0, "ctime": 0, "strftime": 1, "asctime": 0}  # and how many arguments may go before
_TAKE_SECONDS = ("localtime", "gmtime", "ctime")  # the others take a time in parts
_PYTHON = f"{Path(os.__file__).parent}{os.sep}"
_PACKAGES = (f"site-packages{os.sep}", f"dist-packages{os.sep}")
_TORCH = tuple(f"{packages}torch{os.sep}" for packages in _PACKAGES)
_OURS = f"{Path(__file__).parents[2]}{os.sep}"


class Site(NamedTuple):
    """Where a clock is read."""

    path: str
    function: str
    line: int

    @property
    def number(self) -> int:
        """Of the function, the same in each run."""
        return _number(self.path, self.function)


class Observer(Protocol):
    def read(self, clock: Clock, site: Site) -> Any:
        """Returns what the program is given. One that raises is not asked again, and the program is told nothing."""
        ...


class Clock:
    """Called as the function is. No function itself: a class that keeps one as an attribute would give itself to it."""

    def __init__(self, name: str) -> None:
        self.now: Callable[[], Any] = getattr(time, name)
        _named(self, name, self.now)

    def __call__(self) -> Any:
        return self.now() if _observer is None else _seen(self, sys._getframe(1))

    def __reduce__(self) -> str:
        return self.__name__  # pickle looks for it in `time`, where it is also if nothing is recorded

    def __repr__(self) -> str:
        return repr(self.now)

    __name__: str


class OfNow:
    """A function that takes the time of now where it is given none."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._original: Callable[..., Any] = getattr(time, name)
        self._clock = clock
        self._given = _OF_NOW[name]
        _named(self, name, self._original)

    def __call__(self, *args: Any) -> Any:
        if _observer is None or len(args) != self._given:
            return self._original(*args)
        now = _seen(self._clock, sys._getframe(1))
        return self._original(*args, now if self.__name__ in _TAKE_SECONDS else _localtime(now))

    def __reduce__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return repr(self._original)

    __name__: str


CALLED = (Clock.__call__, OfNow.__call__)

_observer: Observer | None = None
_main = 0
_is_asked = False  # what is read meanwhile, in a signal's handler for example, is not seen


def watch() -> None:
    """Called before the program's first line, on its main thread."""
    global _main
    _main = get_ident()
    clocks = {name: Clock(name) for name in CLOCKS if hasattr(time, name)}
    vars(time).update({**clocks, **{name: OfNow(name, clocks["time"]) for name in _OF_NOW}})
    os.register_at_fork(after_in_child=_in_child)


def observe(observer: Observer | None) -> None:
    """None: nobody sees anything from here on."""
    global _observer
    _observer = observer


def _in_child() -> None:
    global _main, _is_asked
    _main, _is_asked = get_ident(), False


def _seen(clock: Clock, frame: FrameType) -> Any:
    global _is_asked
    observer, code = _observer, frame.f_code
    if observer is None or _is_asked or get_ident() != _main or not _is_seen(code.co_filename):
        return clock.now()
    _is_asked = True
    try:
        return observer.read(clock, Site(code.co_filename, code.co_qualname, frame.f_lineno))
    except Exception as error:
        if not _is_ours(error):  # a signal's handler raised it, which is for the program
            raise
        observe(None)
        return clock.now()
    finally:
        _is_asked = False


def _is_ours(error: Exception) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS)


@lru_cache(maxsize=4096)
def _is_seen(path: str) -> bool:
    """Whether what is read in this file counts."""
    is_package = any(packages in path for packages in _PACKAGES)
    is_python = path.startswith("<frozen ") or (path.startswith(_PYTHON) and not is_package)
    return not (is_python or path.startswith(_OURS) or any(torch in path for torch in _TORCH))


@lru_cache(maxsize=4096)
def _number(path: str, function: str) -> int:
    return zlib.crc32(f"{path}\0{function}".encode("utf-8", "surrogatepass"))


def _named(instance: Any, name: str, original: Any) -> None:
    vars(instance).update(__name__=name, __qualname__=name, __module__="time", __doc__=original.__doc__)
