"""Runs the configurations that have not run yet, some at once, and works out what each says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from prismdbg.errors import PrismError
from prismdbg.jobs.capture.capture import Say
from prismdbg.model.durations import duration
from prismdbg.model.plurals import counted
from prismdbg.sweep.evaluate import evaluate, predict
from prismdbg.sweep.folder import SweepFolder
from prismdbg.sweep.request import FOLDER, How, SweepRequest, Trial
from prismdbg.sweep.result import Result, State
from prismdbg.sweep.space import Configuration
from prismdbg.sweep.trial_process import start

_END_BOUND_S = 30.0  # of a configuration that is told to end, until it is killed
_ERROR = "error: "
_LAST_BYTES = 4096  # of what one printed, in which its error is looked for


def sweep(request: SweepRequest, say: Say) -> list[Result]:
    """One result for each configuration, in their order. What has run before is not run again."""
    request.space.check(request.command, FOLDER, is_told_mesh=request.how is How.PREDICT)
    if request.tokens:
        request.space.check_product(request.tokens)
    if request.how is How.PREDICT:
        return list(_all_predicted(request, say))
    folder = SweepFolder.open(request)
    trials = [(one, folder.trial(one) if one.mesh is not None else None) for one in request.space.configurations()]
    missing = [trial for _, trial in trials if trial is not None and not folder.has_run(trial)]
    if done := sum(trial is not None for _, trial in trials) - len(missing):
        say(f"{counted(done, 'configuration')} ran before; {len(missing)} to go")
    why = _Group(folder, say).run(missing, request.jobs)
    return [_result(folder, one, trial, why) for one, trial in trials]


def _all_predicted(request: SweepRequest, say: Say) -> Iterator[Result]:
    tried = list(request.space.configurations())
    for number, one in enumerate(tried, 1):
        yield _predicted(request, one)
        say(f"{one.name}: predicted; {len(tried) - number} to go")


def _predicted(request: SweepRequest, one: Configuration) -> Result:
    if one.mesh is None:
        return _impossible(one)
    try:
        return predict(request, one)
    except PrismError as error:
        return Result(name=one.name, values=one.values, state=State.FAILED, mesh=str(one.mesh), why=str(error))


def _impossible(one: Configuration) -> Result:
    return Result(name=one.name, values=one.values, state=State.IMPOSSIBLE, why=one.impossible)


def _result(folder: SweepFolder, one: Configuration, trial: Trial | None, why: dict[str, str]) -> Result:
    if trial is None:
        return _impossible(one)
    failed = Result(name=one.name, values=one.values, state=State.FAILED, mesh=str(one.mesh))
    if one.name in why:
        return failed.because(why[one.name])
    if (known := folder.result(trial)) is not None:
        return known
    try:
        result = evaluate(trial)
    except PrismError as error:
        return failed.because(str(error))
    folder.keep(trial, result)
    return result


class _Group:
    """Processes of configurations that run at once."""

    def __init__(self, folder: SweepFolder, say: Say) -> None:
        self._folder = folder
        self._say = say
        self._running: dict[int, tuple[Trial, BaseProcess, float]] = {}  # by sentinel
        self._why: dict[str, str] = {}

    def run(self, trials: list[Trial], at_once: int) -> dict[str, str]:
        """Why configurations failed, by their names."""
        waiting = list(reversed(trials))
        try:
            while waiting or self._running:
                while waiting and len(self._running) < at_once:
                    self._begin(waiting.pop())
                ended = set(wait(list(self._running)))
                for sentinel in [each for each in self._running if each in ended]:
                    self._end(*self._running.pop(sentinel), left=len(waiting) + len(self._running))
        finally:
            self._stop()
        return self._why

    def _begin(self, trial: Trial) -> None:
        self._folder.begin(trial)
        process = start(trial)
        self._running[process.sentinel] = trial, process, time.monotonic()

    def _end(self, trial: Trial, process: BaseProcess, begun_s: float, left: int) -> None:
        process.join()
        took = duration(time.monotonic() - begun_s)
        name = trial.configuration.name
        if process.exitcode == 0:
            self._folder.ran(trial)
            self._say(f"{name}: {took}; {left} to go")
        else:
            self._why[name] = _last_error(trial.output) or f"it ended with exit code {process.exitcode}"
            self._say(f"{name} failed after {took}; {left} to go: {self._why[name]}; all it printed: {trial.output}")

    def _stop(self) -> None:
        """What still runs when the sweep is ended."""
        for _, process, _ in self._running.values():
            process.terminate()
        for _, process, _ in self._running.values():
            process.join(_END_BOUND_S)
            process.kill()


def _last_error(output: Path) -> str:
    """Our last error line, and what the program printed last before it."""
    text = output.read_bytes()[-_LAST_BYTES:].decode(errors="replace") if output.is_file() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    at = next((n for n in reversed(range(len(lines))) if lines[n].startswith(_ERROR)), len(lines))
    before = [line for line in lines[:at] if not line.startswith("prismdbg: ")][-1:]
    return ": ".join([*(line.removeprefix(_ERROR) for line in lines[at : at + 1]), *before])
