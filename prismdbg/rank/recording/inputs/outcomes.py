"""Notes what the programs that a rank starts give it, which are inputs as the answers of its peers are: whether one
could be started, its exit code, and what it printed where the rank took that with `communicate`.

Installed with torch's import, before the rank's log is open. Nothing here raises into the program.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prismdbg.capsule.log.notes import PROGRAM
from prismdbg.rank.program import children
from prismdbg.rank.program.children import Command, Outcome
from prismdbg.rank.program.interruptions import is_for_the_program

MOST_PROGRAMS = 500
MOST_ARGUMENTS_BYTES = 16 << 10
MOST_OUTPUT_BYTES = 64 << 10  # of one program
MOST_BYTES = 1 << 20

Note = Callable[..., None]


@dataclass(slots=True)
class _Started:
    """`nth`: of the starts of the same command."""

    command: Command
    nth: int
    has_ended: bool = False
    has_output: bool = False


class Outcomes:
    """Without a lock: a program that is forked meanwhile would find it held."""

    def __init__(self) -> None:
        self._note: Note | None = None
        self._waiting: deque[dict[str, Any]] = deque()
        self._starts: dict[Command, int] = {}
        self._programs = self._bytes = 0

    def install(self) -> None:
        children.install(self)

    def listen(self, note: Note) -> None:
        """`note(kind, **data)` gets what there is so far, and later ones as they come."""
        self._note = note
        while self._waiting:
            note(PROGRAM, **self._waiting.popleft())

    def start(
        self, command: Command, begin: Callable[[], None], instead: Callable[[list[str]], None]
    ) -> _Started | None:
        started = self._counted(command)
        try:
            begin()
        except OSError as error:
            if started is not None:
                self._tell(started, errno=error.errno or 0, text=_name(error.filename))
            raise
        if started is not None:
            self._tell(started)
        return started

    def ended(self, started: _Started, outcome: Outcome) -> Outcome:
        has_output = outcome.out is not None or outcome.err is not None
        if not started.has_ended or (has_output and not started.has_output):
            started.has_ended, started.has_output = True, has_output
            self._tell(started, code=outcome.code, **self._printed(outcome))
        return outcome

    def _counted(self, command: Command) -> _Started | None:
        """None where it is not noted."""
        if self._programs >= MOST_PROGRAMS:
            return None
        size = sum(map(len, command.arguments))
        if size > MOST_ARGUMENTS_BYTES:
            return None
        if self._bytes + size > MOST_BYTES:
            self._programs = MOST_PROGRAMS  # no later one either, or the commands that are counted never end
            return None
        nth = self._starts[command] = self._starts.get(command, 0) + 1
        self._programs, self._bytes = self._programs + 1, self._bytes + size
        return _Started(command, nth)

    def _printed(self, outcome: Outcome) -> dict[str, Any]:
        printed = [each for each in (outcome.out, outcome.err) if each is not None]
        if not all(isinstance(each, bytes | str) for each in printed) or sum(map(len, printed)) > MOST_OUTPUT_BYTES:
            return {"cut": True}  # before anything is decoded: it may be most of the memory
        texts = {"out": _text(outcome.out), "err": _text(outcome.err)}
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts.values() if text is not None)
        if size > MOST_OUTPUT_BYTES or self._bytes + size > MOST_BYTES:
            return {"cut": True}
        self._bytes += size
        return {name: text for name, text in texts.items() if text is not None}

    def _tell(self, started: _Started, **data: Any) -> None:
        try:
            command = started.command
            told = {"arguments": command.arguments, "folder": command.folder, "nth": started.nth, **data}
            if self._note is None:
                self._waiting.append(told)
            else:
                self._note(PROGRAM, **told)
        except Exception as error:  # one of ours would fail the program's start of another program
            if is_for_the_program(error):
                raise


def _text(printed: Any) -> str | None:
    """Bytes as a text that gives them back: `encode("utf-8", "surrogateescape")`."""
    return printed.decode("utf-8", "surrogateescape") if isinstance(printed, bytes) else printed


def _name(filename: Any) -> str:
    return os.fsdecode(filename) if isinstance(filename, str | bytes | os.PathLike) else ""
