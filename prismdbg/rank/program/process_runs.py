"""Processes that `multiprocessing` starts: how the run of this one ended, and by which forks it came about.

What its function raises is caught and printed by `multiprocessing`, so no hook of Python's is called; and a forked one
ends with `os._exit` (before Python 3.13 `atexit` calls nothing in it, later nothing that its parent registered).

Standard library only, for it is needed before torch is there.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

MODULE = "multiprocessing.process"

_started = _known = os.getpid()  # the process in which Python started; the last of those to which the way is known
_way: list[str] = []  # from the former to the latter
_raised: list[Callable[[BaseException], None]] = []
_ended: list[Callable[[int], None]] = []


def listen(raised: Callable[[BaseException], None], ended: Callable[[int], None]) -> None:
    """`raised`: is told of an exception that ends the run, not of SystemExit. `ended`: is told the exit code, of a
    forked process alone: `atexit` tells the end of any other."""
    _raised.append(raised)
    listen_to_end(ended)


def listen_to_end(ended: Callable[[int], None]) -> None:
    """`ended` is told the exit code after all that listened before."""
    _ended.append(ended)


def watch(process: Any) -> None:
    """The import of `multiprocessing.process` is complete."""
    original = process.BaseProcess._bootstrap

    @functools.wraps(original)
    def bootstrap(self: Any, *arguments: Any, **named: Any) -> int:
        code = 1
        with contextlib.suppress(Exception):  # of an odd target: then the way to this process is not known
            _note_fork(self)
        _watch_exceptions(sys.exc_info()[1])
        try:
            code = int(original(self, *arguments, **named))
        finally:
            if os.getpid() != _started:
                tell_end(code)
        return code

    process.BaseProcess._bootstrap = bootstrap


def forked() -> list[str] | None:
    """The forks of `multiprocessing` from the start of Python to this process, one `described` each. Empty where a fork
    of another kind was among them; None in the process in which Python started."""
    if os.getpid() == _started:
        return None
    return list(_way) if os.getpid() == _known else []


def go_on_as_forked() -> None:
    """This process is from here on what its program would have forked: it ends as that would."""
    global _started
    _started = 0


def described(process: Any) -> str:
    """Its place among the processes of the program, and what it runs."""
    return f"{'.'.join(map(str, process._identity))} {runs(process)}"


def runs(process: Any) -> str:
    """Its function, also where torch's calls that; for a class with a function of its own, the class."""
    what: Any = getattr(process, "_target", None)
    if getattr(what, "__module__", "") == "torch.multiprocessing.spawn" and process._args:
        what = process._args[0]
    while isinstance(what, functools.partial):
        what = what.func
    if not hasattr(what, "__qualname__"):
        what = type(process if what is None else what)
    line = f":{what.__code__.co_firstlineno}" if what.__qualname__.endswith("<lambda>") else ""
    return f"{getattr(what, '__module__', '')}.{what.__qualname__}{line}"


def _note_fork(process: Any) -> None:
    global _known
    if os.getpid() != _known == process._parent_pid:
        _known = os.getpid()
        _way.append(described(process))


def _watch_exceptions(before: BaseException | None) -> None:
    """`before`: what the parent was handling when it forked.

    By a wrapper of `run`, the traceback that is printed would have a frame of ours. The first of these functions is
    called while the exception is on its way (not by each version of Python), the second one when it is caught.
    """
    import traceback
    from multiprocessing import util

    told: list[BaseException | None] = [before]

    def watch(module: ModuleType, name: str) -> None:
        original = getattr(module, name)

        @functools.wraps(original)
        def telling(*arguments: Any, **named: Any) -> Any:
            error = sys.exc_info()[1]
            if (
                sys._getframe(1).f_globals.get("__name__") == MODULE
                and error is not None
                and not _is_one_of(told, error)
            ):
                told.append(error)
                tell(error)
            return original(*arguments, **named)

        setattr(module, name, telling)

    watch(util, "_exit_function")
    watch(traceback, "print_exc")


def _is_one_of(told: list[BaseException | None], error: BaseException) -> bool:
    """Exceptions of a program may compare as they like."""
    return any(error is one for one in told)


def tell(error: BaseException) -> None:
    """Of an exception that ends the run of this process."""
    if not isinstance(error, SystemExit):
        for raised in _raised:
            with contextlib.suppress(Exception):  # it would take the place of what the program raised
                raised(error)


def tell_end(code: int) -> None:
    """Nothing else tells it."""
    for ended in _ended:
        with contextlib.suppress(Exception):  # it would be the end of the program instead
            ended(code)
