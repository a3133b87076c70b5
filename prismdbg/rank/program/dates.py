"""`datetime.datetime.now` and `utcnow` take the time from the clock that the program is given.

Python's own ask the operating system, below all that `clocks` sees. Attributes of their class, which is written in C,
cannot be set, so they are replaced in its dictionary. Only versions of Python that were tried are touched. Standard
library only, as `clocks`.
"""

from __future__ import annotations

import gc
import sys
import time
from _warnings import warn
from collections.abc import Callable
from types import ClassMethodDescriptorType
from typing import Any

from prismdbg.rank.program import clocks

NEWEST = (3, 13)


class _Bound:
    """What the program has as `datetime.now`: the builtin in all but its type. While nobody observes the clocks, the
    builtin is called.

    What it needs then are attributes. When the interpreter ends, names of modules and builtins go before the last of
    the program's objects.
    """

    _clock = clocks.clock_of("time_ns")  # as exact as Python's own
    _is_observed, _seen = staticmethod(clocks.is_observed), staticmethod(clocks.seen)
    _ns_per_us, _us_per_s = 1000, 1_000_000

    def __init__(self, own: Any, from_timestamp: Callable[..., Any]) -> None:
        self._own, self._from_timestamp = own, from_timestamp  # both of the class itself, whatever a subclass calls so
        self.__doc__, self.__module__ = own.__doc__, own.__module__

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)  # `__self__`, `__name__` and so on

    def __repr__(self) -> str:
        return repr(self._own)

    def __eq__(self, other: object) -> bool:
        return self._own == other._own if isinstance(other, _Bound) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._own)

    def __reduce__(self) -> Any:
        return self._own.__reduce__()  # by name: who reads it may have no prismdbg

    @property
    def __signature__(self) -> Any:
        import inspect

        return inspect.signature(self._own)


class Now(_Bound):
    def __call__(self, *args: Any, **named: Any) -> Any:
        if not self._is_observed() or len(args) + len(named) > 1 or (named and "tz" not in named):
            return self._own(*args, **named)
        us = self._seen(self._clock) // self._ns_per_us
        return self._from_timestamp(us / self._us_per_s, *args, *named.values())  # rounds to `us` until 2106


class UtcNow(_Bound):
    _warn, _gmtime = staticmethod(warn), staticmethod(time.gmtime)
    _warns, _category = sys.version_info >= (3, 12), DeprecationWarning
    _outdated = (
        "datetime.datetime.utcnow() is deprecated and scheduled for removal in a future version. Use timezone-aware "
        "objects to represent datetimes in UTC: datetime.datetime.now(datetime.UTC)."
    )
    _last_second = 59  # of a minute: Python's own leave out leap seconds, too

    def __call__(self, *args: Any, **named: Any) -> Any:
        if args or named or not (self._warns or self._is_observed()):
            return self._own(*args, **named)
        if self._warns:  # Python's own would name a line of ours
            self._warn(self._outdated, self._category, 2)
        us = self._seen(self._clock) // self._ns_per_us
        year, month, day, hour, minute, second, *_ = self._gmtime(us // self._us_per_s)
        second = self._last_second if second > self._last_second else second
        return self._own.__self__(year, month, day, hour, minute, second, us % self._us_per_s, None)


def _found_by_dynamo(name: str) -> Callable[..., None]:
    """TorchDynamo breaks the graph where this is called. With the builtin in its place it would give the frame up."""

    def called(*_: Any) -> None: ...

    called.__name__ = name  # by which it then asks the class
    called._torchdynamo_disable = True  # type: ignore[attr-defined]
    return called


class _Replaced(classmethod):  # type: ignore[type-arg]  # Python's own takes no arguments there
    """In the dictionary of the class: gives it and its subclasses what is bound to each."""

    def __init__(self, original: Any, from_timestamp: Any, kind: type, bound: type[_Bound]) -> None:
        super().__init__(_found_by_dynamo(original.__name__))
        self._original, self._from_timestamp, self._bound = original.__get__, from_timestamp.__get__, bound
        self._kind, self._of_kind = kind, self._bound_to(kind)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        owner = type(instance) if owner is None else owner
        return self._of_kind if owner is self._kind else self._bound_to(owner)

    def _bound_to(self, owner: type) -> _Bound:
        return self._bound(self._original(None, owner), self._from_timestamp(None, owner))


CALLED: tuple[Callable[..., Any], ...] = (_Replaced.__get__, Now.__call__, UtcNow.__call__)

_names: dict[str, Any] = {}  # of the class
_originals: dict[str, Any] = {}
_replaced: dict[str, Any] = {}  # kept: who is just looking one up does not hold it
_is_left = False


def are_watched() -> bool:
    return bool(_names)


def watch(module: Any) -> None:
    """The import of `datetime` is complete. A class that is not as expected stays as it is."""
    global _names
    if _is_left or _names or sys.version_info[:2] > NEWEST or sys.abiflags:  # a build for threads, or to debug Python
        return
    kind = module.datetime
    names = gc.get_referents(vars(kind))[0]
    now, utcnow, from_timestamp = (vars(kind).get(name) for name in ("now", "utcnow", "fromtimestamp"))
    kinds = {type(original) for original in (now, utcnow, from_timestamp)}
    if type(names) is not dict or kinds != {ClassMethodDescriptorType}:
        return
    _originals.update(now=now, utcnow=utcnow)
    _replaced.update(
        now=_Replaced(now, from_timestamp, kind, Now), utcnow=_Replaced(utcnow, from_timestamp, kind, UtcNow)
    )
    _names = names
    _put(_replaced)
    if not (isinstance(kind.now, Now) and isinstance(kind.utcnow, UtcNow)):
        leave()


def leave() -> None:
    """They are Python's own again. Who took one before keeps it, and it gives what Python's own does."""
    global _names, _is_left
    _is_left = True
    if _names:
        _put(_originals)
    _names = {}


def _put(found: dict[str, Any]) -> None:
    """Python keeps what it found in a class. In the versions up to `NEWEST`, its specialized instructions keep no class
    methods, so all that is kept is in this cache."""
    _names.update(found)
    sys._clear_type_cache()
