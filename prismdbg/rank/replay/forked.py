"""Starts a rank again that multiprocessing forked: the program is started, and goes on as the rank where it would fork
it. Nothing is forked, so the process that is replayed, debugged and checkpointed is the one that was started.

The other processes of the program that run the same function are its ranks, too, and are not started. They seem to live
until somebody waits for their end, and then to have ended well. Standard library only, for the program may fork before
it imports torch.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from prismdbg.capsule.spawned import NOT_RECORDED
from prismdbg.rank.program import process_runs
from prismdbg.rank.program.imports import AfterImport
from prismdbg.rank.program.stderr import say
from prismdbg.rank.recording.inputs import seeds, unseeded
from prismdbg.rank.replay.spawned import without_parent

_MODULE = "multiprocessing.popen_fork"


def install(forks: Iterable[str]) -> None:
    """Called before the program's first line. `forks`: as `process_runs.described`, in their order."""
    way = list(forks)
    _tell_at_end(way)
    if _MODULE in sys.modules:
        _watch(sys.modules[_MODULE], way)
    else:
        finder = AfterImport([_MODULE], lambda name: _watch(sys.modules[name], way), "the rank is not begun again")
        sys.meta_path.insert(0, finder)


def _tell_at_end(way: list[str]) -> None:
    pid = os.getpid()

    def tell_rest() -> None:
        """The program ends and has not come to the rank: nothing of it can be compared."""
        if not way or os.getpid() != pid:
            return
        number, _, runs = way.pop(0).partition(" ")
        way.clear()
        text = f"{NOT_RECORDED}: why the program did not start its process {number}, which ran {runs}"
        say(text.removeprefix("prismdbg: "))
        process_runs.tell(RuntimeError(text))

    atexit.register(tell_rest)


def _watch(popen_fork: Any, way: list[str]) -> None:
    """`way`: gets shorter with each fork."""
    _tell_at_end(way)  # once more: it is called before what the import of torch registered, which tells the end
    original = popen_fork.Popen._launch
    not_started = _not_started(popen_fork)

    @functools.wraps(original)
    def launch(self: Any, process: Any) -> None:
        if way and process_runs.described(process) == way[0]:
            if threading.current_thread() is not threading.main_thread():  # it would be the main one of the child
                raise RuntimeError(f"{NOT_RECORDED}: what a process does that another thread than the main one forks")
            del way[0]
            instead = {"fork": _forks_nothing(popen_fork), "pipe": _stays_open}
            popen_fork.os = SimpleNamespace(**{**vars(os), **instead})
        elif way and _is_beside(process, way[0]):
            unseeded.about_to_fork()
            self.__class__ = not_started
            self._launch(process)
            return
        original(self, process)

    popen_fork.Popen._launch = launch


def _is_beside(process: Any, step: str) -> bool:
    """Whether it has the same parent and runs the same function as the process of `step`."""
    place, _, runs = step.partition(" ")
    *above, _ = place.split(".")
    return [*map(str, process._identity[:-1])] == above and process_runs.runs(process) == runs


def _forks_nothing(popen_fork: Any) -> Any:
    """In the place of `os.fork`, once: Python's own code does what the child does."""

    def fork() -> int:
        popen_fork.os = os
        process_runs.go_on_as_forked()
        seeds.as_forked()
        without_parent()
        if not sys.modules.keys().isdisjoint(("multiprocessing.synchronize", "multiprocessing.connection")):
            from prismdbg.rank.replay import stand_ins

            stand_ins.wait_for_nobody()
        return 0

    return fork


def _stays_open() -> tuple[int, int]:
    """A pipe. One of them tells a process of the end of its parent, which lives as long as the rank."""
    reading, writing = os.pipe()
    os.dup(writing)
    return reading, writing


def _not_started(popen_fork: Any) -> Any:
    class NotStarted(popen_fork.Popen):  # type: ignore[misc]
        def _launch(self, process: Any) -> None:
            self.pid = os.getpid()
            self.sentinel, other_end = os.pipe()
            os.close(other_end)  # else whoever waits for it would wait forever
            self.finalizer = popen_fork.util.Finalize(self, os.close, (self.sentinel,))

        returncode: int | None

        def poll(self, flag: int = os.WNOHANG) -> int | None:
            if flag == 0:
                self.returncode = self.returncode or 0
            return self.returncode

        def _send_signal(self, number: int) -> None:
            self.returncode = -number

    return NotStarted
