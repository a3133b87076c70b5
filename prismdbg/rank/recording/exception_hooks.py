"""Incidents that show inside the process: an uncaught exception, out of memory, the program's end.

The hooks note what happened and then do what was there before them. A program or a framework may put a hook of its own
in the place of `sys.excepthook`, so the interpreter's audit event is listened to, too: it comes before any hook. Python
has no such event for `threading.excepthook`: there it is what makes the call of the hook that is listened to. Of a
process that `multiprocessing` started, the run is watched.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from types import FrameType, ModuleType, TracebackType
from typing import Any, Protocol

from prismdbg.capsule.secrets.masking import (
    MOST_ELSEWHERE,
    REDACTED,
    hidden,
    known_values,
    merged,
    spans,
    stands_in,
    words_or_more,
    worth_a_search,
)
from prismdbg.capsule.secrets.rules import found_in
from prismdbg.capsule.secrets.several_lines import parts_in
from prismdbg.capsule.secrets.shapes import Found
from prismdbg.rank.c10d.callback_error import meant
from prismdbg.rank.program import process_runs
from prismdbg.rank.program.not_compiled import not_compiled
from prismdbg.rank.recording.inputs import started_in
from prismdbg.rank.recording.program_exit import ExitCode

# Of an exception as it is noted: a record of the log has 2 MiB, JSON makes up to six bytes of a character, and the
# program ends only when the text has been searched for secrets.
MOST_TEXT, MOST_LINES, MOST_LINE = 32 << 10, 250, 1000
# What a secret is told by may stand behind what is kept of it.
_MOST_SEARCHED, _MOST_OF_LINE = 2 * MOST_TEXT, 8 << 10  # of the message and the last line, and of any other line
# Of the lines of messages and notes that are searched together, for secrets of several lines. An older one is masked.
MOST_TOGETHER = 64 * MOST_TEXT
_MOST_BEFORE = 24 << 10  # of lines that are not kept: a private key may begin there
# Of one exception: places that begin as a secret of another line does. A line after so many is masked as a whole.
MOST_PLACES = 100_000
_HEAD = 32  # characters of a secret by which its places are found
# What Python itself writes into a traceback: of a frame the file, the line and the function. In a group, behind a bar.
_OWN_WORDS = re.compile(
    r'[ |+-]*(?:File "[^\n]*", line \d+(?:, in [^\n]*)?\n|(?:Exception Group )?Traceback \(most recent call last\):\n'
    r"|\[Previous line repeated \d+ more times?\]\n)"
    r"|[ |\n]*(?:The above exception was the direct cause of the following exception:\n"
    r"|During handling of the above exception, another exception occurred:\n)"
)
_SPAWN = "torch.multiprocessing.spawn"
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
    every = traceback.format_exception(error, limit=-MOST_LINES)[-(MOST_LINES + _MOST_BEFORE) :]
    lines, parts = every[-MOST_LINES:], _parts(every)[-MOST_LINES:]
    most_of = {**dict.fromkeys(lines, _MOST_OF_LINE), text: _MOST_SEARCHED, lines[-1]: _MOST_SEARCHED}
    found = {line: tuple(found_in(line[:size])) for line, size in most_of.items()}
    variables = (started_in.environment(), os.environ)
    known = tuple(dict.fromkeys(value for each in variables for value in known_values(each, sys.orig_argv)))
    elsewhere = _Elsewhere(_worth_a_look(found.values(), filter(None, parts)))

    def bounded(line: str, most: int, parts: Sequence[Found] | None = ()) -> str:
        searched = line[: most_of[line]]
        own = spans(searched, known, lambda _: (*found[line], *(parts or ())))
        end = _end_of_shown(own, most)  # the rest of a long line is not searched for the secrets of other lines
        others = None if parts is None else elsewhere.places(searched, end)
        if others is None:
            return f"{REDACTED}... (of {len(line)} characters)"
        places = merged(place for place in (*own, *others) if place[0] < end)
        end = max(end, places[-1][1]) if places else end
        shown = hidden(searched[:end], places, lambda _: REDACTED)
        if len(line) <= end and len(shown) <= most:
            return shown
        return f"{shown[:most]}... (of {len(line)} characters)"

    # Those that matter most come first: where there is too much to search, the outermost frames are masked.
    noted, last = bounded(text, MOST_TEXT), bounded(lines[-1], MOST_TEXT, parts[-1])
    before = [bounded(line, MOST_LINE, of_it) for line, of_it in reversed([*zip(lines, parts, strict=True)][:-1])]
    return {
        "incident": "oom" if any(map(_is_out_of_memory, _causes(error))) else "exception",
        "type": kind,
        "text": noted,
        "traceback": [*reversed(before), last],
    }


def _parts(every: Sequence[str]) -> list[list[Found] | None]:
    """Return for each line of a traceback what of it belongs to a secret of several lines; None where there is too much
    to search.

    Lines of messages and notes are searched together up to the next frame: Python makes a text of each line of a note.
    """
    parts: list[list[Found] | None] = [[] for _ in every]
    oldest, left, before = len(every) - MOST_LINES, MOST_TOGETHER, _MOST_BEFORE
    end = len(every)
    while end > max(oldest, 0):
        start = end
        while start > 0 and _OWN_WORDS.match(every[start - 1]) is None:
            size = min(len(every[start - 1]), _most_of(every, start - 1))
            left, before = left - size, before - size * (start <= oldest)
            if left < 0 or before < 0:
                break
            start -= 1
        parts[start:end] = parts_in([_whole_line(every, at) for at in range(start, end)], found_in)
        if left < 0:
            for at in range(max(oldest, 0), start):
                parts[at] = None if _OWN_WORDS.match(every[at]) is None else []
            break
        end = start - 1  # what is there is a frame, or not kept
    return parts


def _most_of(every: Sequence[str], at: int) -> int:
    return _MOST_SEARCHED if at == len(every) - 1 else _MOST_OF_LINE


def _whole_line(every: Sequence[str], at: int) -> str:
    line, most = every[at], _most_of(every, at)
    return line if len(line) <= most else line[: most - 1] + "\n"


def _worth_a_look(found: Iterable[Iterable[Found]], parts: Iterable[Iterable[Found]]) -> tuple[str, ...]:
    """What is searched for in all lines: values, then parts of them."""
    ordered = [
        sorted({form for several in each for one in several for form in _forms(one.value)}) for each in (found, parts)
    ]
    values = dict.fromkeys(chain.from_iterable(ordered))
    return tuple(islice((value for value in values if words_or_more([value])), MOST_ELSEWHERE))


class _Elsewhere:
    """Where the secrets of one line stand in another; it looks at a bounded number of places in all."""

    def __init__(self, values: Sequence[str]) -> None:
        self._values = [(value, bool(worth_a_search([value]))) for value in values]
        self._left = MOST_PLACES

    def places(self, text: str, end: int) -> list[tuple[int, int]] | None:
        """Those that begin before `end`; None where there is too much to look at.

        Words that others may hold by chance are not masked where the traceback's own words stand.
        """
        own_words = _OWN_WORDS.match(text)
        words_from = own_words.end() if own_words is not None else 0
        found: list[tuple[int, int]] = []
        for value, telling in self._values:
            head = value[:_HEAD]
            most = end + len(head) - 1
            at = text.find(head, 0 if telling else words_from, most)
            while at >= 0:
                self._left -= 1
                if self._left < 0:
                    return None
                stop = at + len(value)
                is_it = text.startswith(value, at) and stands_in(value, text[max(at - 1, 0) : stop + 2])
                if is_it:
                    found.append((at, stop))
                at = text.find(head, stop if is_it else at + 1, most)
        return found


def _end_of_shown(places: Iterable[tuple[int, int]], most: int) -> int:
    """Up to where a text is shown in `most` characters, when these places are masked in it."""
    end = shown = 0
    for start, stop in places:
        if shown + start - end >= most:
            break
        shown += start - end + len(REDACTED)
        end = stop
    return end + max(most - shown, 0)


def _forms(value: str) -> tuple[str, str]:
    """As it is, and as a line of the program writes it."""
    return value, repr(value)[1:-1]


def _text(error: BaseException) -> str:
    """As a traceback has it, also where the program's own `__str__` fails or gives a str of a class of its own."""
    try:
        return str.__str__(str(error))
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
    before, thread_before = sys.excepthook, threading.excepthook
    told: list[BaseException] = []  # by the event, and not yet given to our hook: it is the same one

    def on_top(error: BaseException) -> None:
        if not isinstance(error, KeyboardInterrupt):
            _tell(witness, error, **({} if _is_main() else {"thread": True}))

    def exits(caller: FrameType) -> None:
        """torch.multiprocessing.spawn catches what its function raises, and ends the process."""
        if caller.f_globals.get("__name__") == _SPAWN and (error := sys.exc_info()[1]) is not None:
            on_top(error)

    code.install(exits)
    is_ending = sys.is_finalizing  # names of this module are gone then

    @not_compiled
    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "sys.excepthook" and isinstance(arguments[2], BaseException) and not is_ending():
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
    process_runs.listen(on_top, witness.end)
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
