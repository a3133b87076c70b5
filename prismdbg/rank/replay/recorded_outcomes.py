"""Programs that a replayed rank starts: what they gave the recorded rank counts where they give something else here.

They are started for what they do, such as files that they write. Where a replay runs they may be missing, or lack what
they look at (a repository, a device). Not of a restored checkpoint.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismdbg.capsule.log.events import Note
from prismdbg.capsule.log.notes import PROGRAM, moment_of
from prismdbg.rank.program import children
from prismdbg.rank.program.children import Command, Outcome
from prismdbg.rank.program.stderr import say

# Ends as the program did; where the rank was never told of that, with the rank. Nobody waits for what it prints.
STAND_IN = """
import os, sys, time
code, rank = sys.argv[1], int(sys.argv[2])
os.closerange(0, 3)
while not code and os.getppid() == rank:
    time.sleep(0.5)
if code.startswith("-"):
    os.kill(os.getpid(), -int(code))
os._exit(int(code or 0))
"""

Tell = Callable[[str], None]


@dataclass(slots=True)
class _Recorded:
    """`error`: why it could not be started, and the name that this is about. `code`: None where the rank was never told
    of its end. `step`: in which it was started. is_cut: what it printed is not in the record."""

    command: Command
    step: int
    error: tuple[int, str] | None = None
    code: int | None = None
    out: str | None = None
    err: str | None = None
    is_cut: bool = False


class RecordedOutcomes:
    """`replaced`: files that are not the recorded program's; what is started with one of them may end otherwise. Where
    the record decides, it is said once a command."""

    def __init__(self, notes: Iterable[Note], replaced: Collection[str]) -> None:
        self._recorded = _read(notes)
        self._replaced = frozenset(replaced)
        self._starts: dict[Command, int] = {}
        self._told: set[Command] = set()
        self._listener: Tell | None = None
        self._process = 0

    def install(self) -> None:
        self._process = os.getpid()
        if self._recorded:
            children.install(self)

    def listen(self, tell: Tell) -> None:
        """`tell` gets what is said from now on."""
        self._listener = tell

    def go_on_from(self, step: int) -> None:
        """The rank is in this step now, without having started what it started in the steps before."""
        self._starts = {}
        for (command, nth), recorded in self._recorded.items():
            if recorded.step < step:
                self._starts[command] = max(nth, self._starts.get(command, 0))

    def start(
        self, command: Command, begin: Callable[[], None], instead: Callable[[list[str]], None]
    ) -> _Recorded | None:
        if os.getpid() != self._process:  # a forked worker's: the record is of what the rank started
            begin()
            return None
        nth = self._starts[command] = self._starts.get(command, 0) + 1
        recorded = self._recorded.get((command, nth))
        if recorded is None or self._is_edited(command):
            begin()
            return None
        if recorded.error is not None:
            if _is_there(command):
                self._answered(command, "the recorded rank could not start it")
            number, name = recorded.error
            raise OSError(number, os.strerror(number), name or None)
        try:
            begin()
        except OSError as error:
            self._answered(command, f"it cannot be started here ({error.strerror})")
            code = "" if recorded.code is None else str(recorded.code)
            instead([sys.executable, "-I", "-S", "-c", STAND_IN, code, str(os.getpid())])
        return recorded

    def ended(self, started: _Recorded, outcome: Outcome) -> Outcome:
        code = outcome.code if started.code is None else started.code
        given = Outcome(code, _fitting(outcome.out, started.out), _fitting(outcome.err, started.err))
        if given.code != outcome.code:
            lacks = "; what it printed is not in the recording" if started.is_cut else ""
            self._answered(started.command, f"here it ends with exit code {outcome.code}{lacks}")
        elif given != outcome:
            self._answered(started.command, "here it prints something else")
        return given

    def _is_edited(self, command: Command) -> bool:
        paths = (os.path.normpath(f"{Path(command.folder, word)}") for word in command.arguments)
        return any(path in self._replaced for path in paths)

    def _answered(self, command: Command, why: str) -> None:
        if command not in self._told:
            self._told.add(command)
            text = f"{command}: answered from the recording: {why}"
            say(text)
            if self._listener is not None:
                self._listener(text)


def _read(notes: Iterable[Note]) -> dict[tuple[Command, int], _Recorded]:
    """By command and by the number of its start. A program that ended has two notes: of its start, and of its end."""
    found: dict[tuple[Command, int], _Recorded] = {}
    for data in (note.data for note in notes if note.kind == PROGRAM):
        command = Command(tuple(data["arguments"]), data["folder"])
        moment = moment_of(data)
        new = _Recorded(command, moment.step if moment is not None else 0)
        recorded = found.setdefault((command, data["nth"]), new)
        if (number := data.get("errno", 0)) in errno.errorcode:
            recorded.error = number, data.get("text") or ""
        if data.get("code") is not None:
            recorded.code, recorded.is_cut = data["code"], bool(data.get("cut"))
            recorded.out, recorded.err = data.get("out"), data.get("err")
    return found


def _is_there(command: Command) -> bool:
    name = command.arguments[0]
    return shutil.which(Path(command.folder, name) if "/" in name else name) is not None


def _fitting(printed: Any, recorded: str | None) -> Any:
    """The record's in the form of what was printed here; nothing where the rank did not ask for it."""
    if printed is None or recorded is None:
        return printed
    return recorded.encode("utf-8", "surrogateescape") if isinstance(printed, bytes) else recorded
