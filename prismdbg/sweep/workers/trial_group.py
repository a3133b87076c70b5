"""Configurations that run at once, each in a process of its own: as many as are wanted, until all have run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from prismdbg.jobs.capture.capture import Say
from prismdbg.model.durations import duration
from prismdbg.sweep.folder import SweepFolder
from prismdbg.sweep.request import How, Trial
from prismdbg.sweep.workers.guardian import TO_END_S, longest_end_s
from prismdbg.sweep.workers.trial_process import start

_ERROR = "error: "
_LAST_BYTES = 4096  # of what one printed, in which its error is looked for


@dataclass(slots=True)
class _Running:
    """ends_s: when it is told to end; once it was told, when it is killed."""

    trial: Trial
    process: BaseProcess
    begun_s: float
    ends_s: float
    is_told: bool = False


class TrialGroup:
    """`at_once`: so many. A recorded job has `bound_s`; an emulation bounds each rank by itself. to_end_s: what is told
    to end has so long."""

    def __init__(self, folder: SweepFolder, at_once: int, bound_s: float, say: Say, to_end_s: float = TO_END_S) -> None:
        self._folder = folder
        self._at_once = at_once
        self._bound_s = bound_s
        self._say = say
        self._to_end_s = to_end_s
        self._running: dict[int, _Running] = {}  # by sentinel
        self._why: dict[str, str] = {}

    def run(self, trials: Sequence[Trial]) -> dict[str, str]:
        """Why configurations failed, by their names."""
        waiting = list(reversed(trials))
        try:
            while waiting or self._running:
                while waiting and len(self._running) < self._at_once:
                    self._begin(waiting.pop())
                ended = set(wait(list(self._running), self._left_s()))
                for sentinel in [each for each in self._running if each in ended]:
                    self._end(self._running.pop(sentinel), left=len(waiting) + len(self._running))
                self._end_what_takes_too_long()
        finally:
            self._stop()
        return self._why

    def _begin(self, trial: Trial) -> None:
        self._folder.begin(trial)
        self._say(f"{trial.configuration.name}: started")
        process, now_s = start(trial, self._to_end_s), time.monotonic()
        bound_s = self._bound_s if trial.request.how is How.RECORD else inf
        self._running[process.sentinel] = _Running(trial, process, now_s, now_s + bound_s)

    def _left_s(self) -> float | None:
        """Until somebody takes too long; None where nobody can."""
        first_s = min((each.ends_s for each in self._running.values()), default=inf)
        return None if first_s == inf else max(first_s - time.monotonic(), 0.0)

    def _end_what_takes_too_long(self) -> None:
        now_s = time.monotonic()
        for each in self._running.values():
            if each.ends_s <= now_s and each.is_told:
                each.process.kill()
            elif each.ends_s <= now_s:
                each.is_told, each.ends_s = True, now_s + longest_end_s(self._to_end_s)
                each.process.terminate()

    def _end(self, ended: _Running, left: int) -> None:
        ended.process.join()
        name, output = ended.trial.configuration.name, ended.trial.output
        took = duration(time.monotonic() - ended.begun_s)
        if ended.process.exitcode == 0:
            self._folder.ran(ended.trial)
            self._say(f"{name}: {took}; {left} to go")
            return
        why = last_error(output) or f"it ended with exit code {ended.process.exitcode}"
        why = f"it did not end within {duration(self._bound_s)} (--timeout)" if ended.is_told else why
        first = next((other for other, known in self._why.items() if known == why), "")
        self._why[name] = why
        what = f"as {first} did" if first else why
        self._say(f"{name} failed after {took}; {left} to go: {what}; all it printed: {output}")

    def _stop(self) -> None:
        """What still runs when the sweep is ended."""
        for each in self._running.values():
            each.process.terminate()
        for each in self._running.values():
            each.process.join(longest_end_s(self._to_end_s))
            each.process.kill()


def last_error(output: Path) -> str:
    """Our last error line, and what the program printed last before it. A rule, as torchrun's, says nothing."""
    text = _end_of(output).decode(errors="replace") if output.is_file() else ""
    lines = [line.strip() for line in text.splitlines() if any(map(str.isalpha, line))]
    at = next((n for n in reversed(range(len(lines))) if lines[n].startswith(_ERROR)), len(lines))
    before = [line for line in lines[:at] if not line.startswith("prismdbg: ")][-1:]
    return ": ".join([*(line.removeprefix(_ERROR) for line in lines[at : at + 1]), *before])


def _end_of(output: Path) -> bytes:
    """Of what may have any size."""
    with output.open("rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - _LAST_BYTES, 0))
        return file.read(_LAST_BYTES)
