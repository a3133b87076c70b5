"""With which code the program ends: Python says it to nobody but the system, `atexit` does not learn it.

`raise SystemExit(n)` without `sys.exit` is not seen, and counts as 0.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from prismdbg.errors import INTERRUPTED

_MARK = "_prismdbg"


class ExitCode:
    """`value` is that of the exception that is on its way to the top, or arrived there; 0 where it was caught.

    The exception is a SystemExit and no class of ours, for programs compare. None can be referred to weakly, but what
    it carries can.
    """

    def __init__(self) -> None:
        self.value = 0
        self._on_its_way: weakref.ref[set[None]] | None = None

    def install(self, about_to: Callable[[FrameType], None] = lambda _: None) -> None:
        """`about_to`: is told which frame calls `sys.exit`."""

        made_of, is_ending = _made_of, sys.is_finalizing  # names of this module are gone then

        def exit(status: object = None, /) -> NoReturn:
            if is_ending():
                raise made_of(status)
            with suppress(Exception):  # C may call it without a frame; the program ends as it would
                about_to(sys._getframe(1))
            error, carried = made_of(status), set[None]()
            error.__dict__[_MARK] = carried  # goes with it; a set can be pickled everywhere
            self.value = _code_in(error)
            self._on_its_way = weakref.ref(carried, self._gone)
            try:
                raise error
            finally:
                del error, carried  # its traceback holds this frame: it would keep itself alive

        sys.exit = exit

    def _gone(self, _: object) -> None:
        """Let go by the interpreter, below which there is no frame, or by a program that caught it and goes on."""
        if sys._getframe().f_back is not None:
            self.value = 0

    def raised(self, error: BaseException) -> None:
        """An exception came to the top."""
        self.value = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _made_of(status: object) -> SystemExit:
    """As Python makes it: an exception of this kind is that exception, a tuple has the arguments."""
    if isinstance(status, SystemExit):
        return status
    if isinstance(status, tuple):
        return SystemExit(*status)
    return SystemExit() if status is None else SystemExit(status)


def _code_in(error: SystemExit) -> int:
    try:
        return code_of(error.code)
    except Exception:  # of a class that has its own
        return 1


def code_of(status: object) -> int:
    """As Python makes it: nothing is 0, a number itself, anything else is printed and 1."""
    if status is None:
        return 0
    return int(status) if isinstance(status, int) else 1
