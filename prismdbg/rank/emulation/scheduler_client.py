"""Emulated ranks of one run take turns: one runs, the others stand where they lack a value or have just sent one.

Over two pipes from whoever started this process: a line in says until which value to run, one out why it stands.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from prismdbg.capsule.log.format import StepSource
from prismdbg.errors import UsageError
from prismdbg.model.frame import Frame, source_of
from prismdbg.settings.emulation import LEFT_EXIT, step_of
from prismdbg.settings.missing_value import MissingValue


class SchedulerClient:
    """`until`: the value after which this rank stands again; empty: it runs as far as it gets.

    after: called when it goes on; others may have said something meanwhile. stood: told how long it stood, in ns.
    """

    def __init__(self, ask_fd: int, say_fd: int, until: str = "") -> None:
        self._ask = os.fdopen(ask_fd, "r", encoding="utf-8")
        self._say_fd = say_fd
        self._until = until
        self.after: list[Callable[[], None]] = []
        self.stood: Callable[[int], None] = lambda taken_ns: None
        self._lock = threading.Lock()
        for descriptor in (ask_fd, say_fd):
            os.set_inheritable(descriptor, False)
        threading.Thread(target=self._end_when_left, name="prismdbg-turn", daemon=True).start()

    def kept(self, key: str) -> None:
        """This rank has just sent a value."""
        if key == self._until:
            self._stand({"event": "kept", "key": key})

    def begin_step(self, step: int, _: StepSource) -> None:
        """Stands where it was to run up to this step. One that came past it meanwhile, for another rank's sake, too."""
        if step >= step_of(self._until):
            self._stand({"event": "kept", "key": self._until})

    def lacks(self, value: MissingValue) -> None:
        """Stands until another rank has sent it; whoever asks looks again then."""
        self._stand({"event": "lacks", **replace(value, where=program_line()).to_json()})

    def refuse(self, error: UsageError) -> None:
        """This run is worth nothing: whoever gives the turns says why, and ends it."""
        self._stand({"event": "refused", "text": str(error), "hint": error.hint})

    def _end_when_left(self) -> None:
        """Whoever gives the turns has closed the pipe, or is gone: nobody would ever end this rank."""
        pipe = select.poll()
        pipe.register(self._ask.fileno(), 0)  # only that the other end is closed
        pipe.poll()
        os._exit(LEFT_EXIT)

    def _stand(self, why: dict[str, object]) -> None:
        with self._lock:
            began_ns = time.monotonic_ns()
            os.write(self._say_fd, json.dumps(why).encode() + b"\n")
            line = self._ask.readline()
            if not line:  # nobody needs this rank any more
                os._exit(LEFT_EXIT)
            self._until = str(json.loads(line)["until"])
            for look in self.after:
                look()
            self.stood(time.monotonic_ns() - began_ns)


def program_line() -> str:
    """The program's own line; neither ours nor a library's."""
    ours = str(Path(__file__).parents[1])
    stack = (frame for frame in reversed(traceback.extract_stack()) if not frame.filename.startswith(ours))
    return str(source_of(tuple(Frame(f.filename, f.lineno or 0, f.name) for f in stack)) or "")
