"""Incidents that show inside the process: an uncaught exception, out of memory, the program's end.

The hooks note what happened and then do what was there before them. A program or a framework may put a hook of its own
in the place of `sys.excepthook`, so the interpreter's audit event is listened to, too: it comes before any hook. Python
has no such event for `threading.excepthook`: there it is what makes the call of the hook that is listened to.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType, TracebackType
from typing import Any, Protocol

from prismdbg.capsule.secrets.rules import MOST_ELSEWHERE, found_in, known_values, redact_text, words_or_more
from prismdbg.rank.c10d.callback_error import meant
from prismdbg.rank.recording.program_exit import ExitCode

# Of an exception as it is noted: a record of the log has 2 MiB, JSON makes up to six bytes of a character, and the
# program ends only when the text has been searched for secrets.
MOST_TEXT, MOST_LINES, MOST_LINE = 32 << 10, 250, 1000
_MOST_SEARCHED = 2 * MOST_TEXT  # what a secret is told by may stand behind what is kept of it
OUT_OF_MEMORY_WORDS = ("out of memory", "can't allocate memory", "DefaultCPUAllocator")


class Witness(Protocol):
    """Told of an uncaught exception, then of the end."""

    def exception(self, report: dict[str, Any], error: BaseException) -> None: ...

    def end(self, code: int) -> None: ...


def describe(error: BaseException) -> dict[str, Any]:
    """`incident`, type, text and traceback lines of an exception, innermost frame last; bounded, no secrets.

    A secret that is found in one of these texts stands in none of them: a line of the program may hold as a literal
    what the message has in a URL.
    """
    kind, text = meant(type(error).__qualname__, _text(error))
    # The newest lines; the last one of them may hold the whole text.
    lines = traceback.format_exception(error, limit=-MOST_LINES)[-MOST_LINES:]
    found = {line: tuple(found_in(line[:_MOST_SEARCHED])) for line in (text, *lines)}
    values = sorted({form for several in found.values() for one in several for form in _forms(one.value)})
    known = (*known_values(os.environ, sys.orig_argv), *words_or_more(values)[:MOST_ELSEWHERE])

    def bounded(line: str, most: int) -> str:
        shown = redact_text(line[:_MOST_SEARCHED], known, lambda _: found[line])
        if len(line) <= _MOST_SEARCHED and len(shown) <= most:
            return shown
        return f"{shown[:most]}... (of {len(line)} characters)"

    return {
        "incident": "oom" if any(map(_is_out_of_memory, _causes(error))) else "exception",
        "type": kind,
        "text": bounded(text, MOST_TEXT),
        "traceback": [*(bounded(line, MOST_LINE) for line in lines[:-1]), bounded(lines[-1], MOST_TEXT)],
    }


def _forms(value: str) -> tuple[str, str]:
    """As it is, and as a line of the program writes it."""
    return value, repr(value)[1:-1]


def _text(error: BaseException) -> str:
    """As a traceback has it, also where the program's own `__str__` fails."""
    try:
        return str(error)
    except BaseException:
        return "<exception str() failed>"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and so on: a pipeline's stage wraps whatever its module raises."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or any(word in _text(error) for word in OUT_OF_MEMORY_WORDS)


def _tell(witness: Witness, error: BaseException, **more: Any) -> None:
    """A report that fails must not stand in the way of the program's own traceback."""
    with contextlib.suppress(Exception):
        witness.exception({**describe(error), **more}, error)


def install(witness: Witness) -> None:
    """Listens to what comes to the top, and chains sys.excepthook, threading.excepthook, sys.exit and atexit."""
    code = ExitCode()
    code.install()
    before, thread_before = sys.excepthook, threading.excepthook
    told: list[BaseException] = []  # by the event, and not yet given to our hook: it is the same one

    def on_top(error: BaseException) -> None:
        if not isinstance(error, KeyboardInterrupt):
            _tell(witness, error, **({} if _is_main() else {"thread": True}))

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "sys.excepthook" and isinstance(arguments[2], BaseException):
            told[:] = [arguments[2]]
            if _is_main():
                code.raised(arguments[2])
            on_top(arguments[2])

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Also called by programs that print an exception and go on, and for a thread whose own hook failed."""
        if not any(error is one for one in told):
            on_top(error)
        told.clear()
        before(kind, error, trace)

    def in_thread(error: BaseException | None) -> None:
        if error is not None and not isinstance(error, SystemExit):  # which ends a thread in silence
            _tell(witness, error, thread=True)

    told_of = _listen_to_threads(in_thread)

    def thread_excepthook(arguments: Any) -> None:
        """Also called by programs that print an exception and go on, and by threads that are older than this."""
        if arguments.exc_value is not told_of():
            in_thread(arguments.exc_value)
        thread_before(arguments)

    sys.addaudithook(audit)
    _put(sys, excepthook)
    _put(threading, thread_excepthook)
    atexit.register(lambda: witness.end(code.value))


def _put(module: ModuleType, hook: Callable[..., None]) -> None:
    """In the place of Python's own hook, under both of its names: libraries compare them to see whether the program has
    a hook of its own, and a program that puts Python's back gets what it had."""
    if getattr(module, "__excepthook__", None) is module.excepthook:
        vars(module)["__excepthook__"] = hook
    vars(module)["excepthook"] = hook


def _is_main() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _listen_to_threads(tell: Callable[[BaseException | None], None]) -> Callable[[], BaseException | None]:
    """Tells of what comes to the top of a thread that is made from here on, before any hook. Gives what says which
    exception the calling thread told of and still handles."""
    module: Any = threading
    make: Any = getattr(module, "_make_invoke_excepthook", None)
    here = threading.local()
    exc_info = sys.exc_info  # also where a daemon thread raises while the interpreter ends

    def made() -> Callable[[threading.Thread], None]:
        invoke: Callable[[threading.Thread], None] = make()

        def invoke_excepthook(thread: threading.Thread) -> None:
            here.error = exc_info()[1]
            try:
                tell(here.error)
                invoke(thread)
            finally:
                here.error = None

        return invoke_excepthook

    if make is not None:
        module._make_invoke_excepthook = made
    return lambda: getattr(here, "error", None)
