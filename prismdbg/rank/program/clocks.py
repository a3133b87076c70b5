"""The clocks of `time`: one place that sees what each gives the program, and may give it something else.

Seen is what code of the program and of packages reads. What Python itself, torch and prismdbg read decides how long
they wait and what they report, not what the program computes. Standard library only, for a program may read a clock
before it imports torch.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
import zlib
from _thread import get_ident
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Protocol

from prismdbg.capsule.log.clock_reads import CLOCKS

monotonic_s = time.monotonic  # for our own code: nobody sees it
REPLACES_THEM = ("time_machine",)  # a package that writes into these functions' own memory
_localtime = time.localtime
_OF_NOW = {"localtime": 0, "gmtime": 0, "ctime": 0, "strftime": 1, "asctime": 0}  # and how many arguments may go before
_TAKE_SECONDS = ("localtime", "gmtime", "ctime")  # the others take a time in parts
_CALLERS = 3
_MOST_SITES = 10_000
_PYTHON = f"{Path(os.__file__).parent}{os.sep}"
_PACKAGES = (f"site-packages{os.sep}", f"dist-packages{os.sep}")
_left_out = tuple(f"{packages}torch{os.sep}" for packages in _PACKAGES)  # parts of paths
_OURS = f"{Path(__file__).parents[2]}{os.sep}"


class Site:
    """Where a clock is read: by which line of which function, and from where that was called, nearest first.

    function: a number of the function that reads, the same in each run. place: one of all lines. is_seen: whether what
    is read there counts.
    """

    __slots__ = ("function", "is_seen", "lines", "place")

    def __init__(self, lines: tuple[tuple[str, str, int], ...], is_seen: bool = True) -> None:
        self.lines = lines  # path, function, line
        self.function = _number(lines[0][:2])
        self.place = _number(lines)
        self.is_seen = is_seen

    def __str__(self) -> str:
        path, _, line = self.lines[0]
        return f"{path.rpartition('/')[2]}:{line}"


class Observer(Protocol):
    """What a method raises the program is not told; the observer is not asked again then."""

    def read(self, clock: Clock, site: Site) -> Any:
        """By the main thread. Returns what the program is given."""
        ...

    def read_beside(self, clock: Clock, site: Site) -> Any:
        """By another thread."""
        ...

    def left(self) -> None:
        """It is asked no more, whatever the program reads."""
        ...


class Clock:
    """Called as the function is. No function itself: a class that keeps one as an attribute would give itself to it."""

    def __init__(self, name: str) -> None:
        self.now: Callable[[], Any] = getattr(time, name)
        _named(self, name, self.now)

    def __call__(self) -> Any:
        return self.now() if _observer is None else seen(self)

    def __reduce__(self) -> str:
        return self.__name__  # pickle looks for it in `time`, where it is also if nothing is recorded

    def __repr__(self) -> str:
        return repr(self.now)

    __name__: str


class OfNow:
    """A function that takes the time of now where it is given none."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.now: Callable[..., Any] = getattr(time, name)
        self._clock = clock
        self._given = _OF_NOW[name]
        self._takes_seconds = name in _TAKE_SECONDS
        _named(self, name, self.now)

    def __call__(self, *args: Any) -> Any:
        if self._takes_seconds and args == (None,):
            args = ()
        if _observer is None or len(args) != self._given:
            return self.now(*args)
        seconds = seen(self._clock)
        return self.now(*args, seconds if self._takes_seconds else _localtime(seconds))

    def __reduce__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return repr(self.now)

    __name__: str


def clock_of(name: str) -> Clock:
    found = getattr(time, name)
    return found if isinstance(found, Clock) else Clock(name)


CALLED: tuple[Callable[..., Any], ...] = (Clock.__call__, OfNow.__call__)

_observer: Observer | None = None
_main = 0
_sites: dict[tuple[int | None, ...], tuple[Site, list[Any]]] = {}  # and what tells that the ids hold
_is_left = False
_is_asked = False  # what is read meanwhile, in a signal's handler for example, is not seen


def watch() -> None:
    """Called before the program's first line, on its main thread."""
    global _main
    _main = get_ident()
    clocks = {name: Clock(name) for name in CLOCKS if hasattr(time, name)}
    vars(time).update({**clocks, **{name: OfNow(name, clocks["time"]) for name in _OF_NOW}})
    os.register_at_fork(after_in_child=_in_child)
    atexit.register(_end)  # the first one that is registered, so the last one that is called


def _end() -> None:
    """From here on nothing of ours may hold what the program made: it is freed as in a program that nobody records."""
    global _is_left
    _is_left = True
    observe(None)
    _sites.clear()


def leave_out(folder: str) -> None:
    """What is read in its files does not count."""
    global _left_out
    _left_out = (*_left_out, folder + os.sep)
    _sites.clear()


def leave() -> None:
    """The functions are Python's own again. Who took one from `time` before keeps it, and nobody sees what it gives."""
    global _is_left
    if _observer is not None:
        _observer.left()
    _is_left = True
    observe(None)
    vars(time).update({name: kept.now for name, kept in vars(time).items() if isinstance(kept, Clock | OfNow)})


def observe(observer: Observer | None) -> None:
    """None: nobody sees anything from here on."""
    global _observer
    if _is_left and observer is not None:
        observer.left()
        return
    _observer = observer


def _in_child() -> None:
    global _main, _is_asked
    _main, _is_asked = get_ident(), False


def is_observed() -> bool:
    return _observer is not None


def seen(clock: Clock) -> Any:
    """What the clock gives to who called the function that calls this."""
    global _is_asked
    if (observer := _observer) is None:  # or the interpreter ends, and the names of this module are gone
        return clock.now()
    is_main = get_ident() == _main
    if is_main and _is_asked:
        return clock.now()
    if is_main:
        _is_asked = True
    try:
        site = _site(sys._getframe(2))
        if not site.is_seen:
            return clock.now()
        return observer.read(clock, site) if is_main else observer.read_beside(clock, site)
    except Exception as error:
        if not _is_ours(error):  # a signal's handler or another thread raised it, which is for the program
            raise
        if type(error) is not ValueError:  # else there is no line of Python that calls
            observer.left()
            observe(None)
        return clock.now()
    finally:
        if is_main:
            _is_asked = False


def _site(frame: FrameType) -> Site:
    """Of lines of modules each is made once: a program reads clocks in few places, and often. To ask a frame for its
    code calls the audit hooks of the process, which takes longer than all else here."""
    lines: list[int | None] = []
    modules: list[dict[str, Any]] = []
    found: FrameType | None = frame
    while found is not None and len(lines) <= _CALLERS:
        names = found.f_globals
        if not lines or not _are_ours(names):
            lines.append(found.f_lineno)
            modules.append(names)
        found = found.f_back
    key = (*map(id, modules), *lines)
    if (known := _sites.get(key)) is not None:
        return known[0]
    site = _new_site(frame)
    held = [_held(names, key) for names in modules] if len(_sites) < _MOST_SITES else [None]
    if None not in held:
        _sites[key] = site, held
    return site


def _held(names: dict[str, Any], key: tuple[int | None, ...]) -> Any:
    """What drops the site of `key` before others can have the id of `names`; None where nothing can. Modules are not
    kept alive. `__mp_main__`: the script of a spawned process, whose functions have names of their own."""
    name = names.get("__name__")
    if type(name) is not str:
        return None
    if name == "__mp_main__":
        return names
    module = sys.modules.get(name)
    if not isinstance(module, ModuleType) or module.__dict__ is not names:
        return None
    return weakref.ref(module, lambda _: _sites.pop(key, None))


def _are_ours(names: dict[str, Any]) -> bool:
    """Of a module of prismdbg, which stands between the program's functions in a recording or in a replay alone."""
    name = names.get("__name__")
    return type(name) is str and name.startswith("prismdbg.")


def _new_site(frame: FrameType) -> Site:
    found: FrameType | None = frame
    lines: list[tuple[str, str, int]] = []
    while found is not None and len(lines) <= _CALLERS:
        if not lines or not _are_ours(found.f_globals):
            code = found.f_code
            lines.append((code.co_filename, code.co_qualname, found.f_lineno or 0))
        found = found.f_back
    return Site(tuple(lines), _is_seen(frame.f_code.co_filename))


def _is_ours(error: Exception) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    is_here = trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS)
    return is_here and type(error).__module__ == "builtins" and not isinstance(error, TimeoutError)


def _is_seen(path: str) -> bool:
    is_package = any(packages in path for packages in _PACKAGES)
    is_python = path.startswith("<frozen ") or (path.startswith(_PYTHON) and not is_package)
    return not (is_python or path.startswith(_OURS) or any(part in path for part in _left_out))


def _number(parts: object) -> int:
    return zlib.crc32(repr(parts).encode("utf-8", "surrogatepass"))


def _named(instance: Any, name: str, original: Any) -> None:
    vars(instance).update(__name__=name, __qualname__=name, __module__="time", __doc__=original.__doc__)
