"""How ranks, calls and durations are said in a sentence."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from textwrap import shorten

from prismdbg.errors import INTERRUPTED
from prismdbg.model.collective import Collective
from prismdbg.model.exit_code import signal_name

_SHOWN = 8
_HEADLINE = 160  # characters
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS, signal.SIGTRAP)


def rank_list(ranks: Iterable[int]) -> str:
    """`rank 2`, `ranks 0, 1 and 3`, `ranks 0, 1, 2, 3, 4, 5, 6, 7 and 504 more`."""
    numbers = sorted(ranks)
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > _SHOWN:
        shown = ", ".join(map(str, numbers[:_SHOWN]))
        return f"ranks {shown} and {len(numbers) - _SHOWN} more"
    return f"ranks {and_list([str(number) for number in numbers])}"


def and_list(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def place(collective: Collective) -> str:
    """` at train.py:12 in main`, or nothing."""
    return f" at {where}" if (where := collective.place) else ""


def headline(message: str) -> str:
    """What an exception says, short enough for a sentence: torch tells of memory in whole paragraphs."""
    line = message.splitlines()[0] if message else ""
    return shorten(line, _HEADLINE, placeholder=" ...") if len(line) > _HEADLINE else line


def how_it_died(number: int | None, code: int | None) -> str:
    """Of a rank that said nothing; follows its name. number: of the signal, 0 where it ended by itself, None where that
    is not known. code: its exit code."""
    if number == 0 and code is not None:
        return f"exited with exit code {code}, and its log has no end record: os._exit, or an exit in native code"
    if not number:
        return "died without an error message: killed from outside, or a crash in native code"
    name = signal_name(number)
    if number == signal.SIGABRT:
        return f"died without an error message: aborted ({name}) by a crash in native code, or by a watchdog"
    if number in _CRASHES:
        return f"died without an error message: {name}, a crash in native code"
    return f"died without an error message: killed by {name}"


def exit_code(code: int) -> str:
    """Of a program that said it: `exit code 3`. That of an uncaught KeyboardInterrupt is named."""
    return f"exit code {code}" + (" (KeyboardInterrupt, as after SIGINT)" if code == INTERRUPTED else "")
