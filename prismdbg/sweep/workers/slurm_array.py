"""Configurations as the tasks of one Slurm array. A later start joins it again where an earlier one was killed."""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NotRequired, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.capsule.checked_json import Count
from prismdbg.errors import FacilityError, UsageError
from prismdbg.jobs.capture.capture import Say
from prismdbg.jobs.storage.run_folder import write_json
from prismdbg.model.plurals import counted
from prismdbg.sweep.folder import SweepFolder
from prismdbg.sweep.request import Trial
from prismdbg.sweep.workers import array_task
from prismdbg.sweep.workers.guardian import longest_end_s
from prismdbg.sweep.workers.order import Order
from prismdbg.sweep.workers.slurm import ENDED, NoSlurm, Slurm
from prismdbg.sweep.workers.trial_group import last_error

POLL_S = 2.0
_MARK = "END_OF_THE_ORDER"


class _Stored(TypedDict):
    job: Count
    names: list[str]
    called: NotRequired[str]  # an older version did not name it


@dataclass(frozen=True, slots=True)
class _Array:
    """`names`: of the configurations, by the number of the task. `called`: Slurm's name of it, which is stored before
    it is submitted. `job`: 0 where sbatch has not said it: there may be such an array or not."""

    job: int
    names: tuple[str, ...]
    called: str = ""


class SlurmArray:
    """`folder`: on a file system that all nodes see at the same path."""

    def __init__(self, folder: SweepFolder, slurm: Slurm, say: Say) -> None:
        self._folder = folder
        self._slurm = slurm
        self._say = say
        self._own = _own(folder)
        self._why: dict[str, str] = {}
        self._problem = ""

    def run(self, trials: Sequence[Trial]) -> dict[str, str]:
        if (earlier := _left(self._folder, self._slurm)) is not None:
            self._say(f"joining array {earlier.job} of Slurm, which an earlier start submitted")
            self._follow(earlier)
        self._why.clear()  # what failed for an earlier start is tried again
        if missing := [trial for trial in trials if not self._folder.has_run(trial)]:
            self._follow(self._submitted(missing))
        return self._why

    def _submitted(self, trials: Sequence[Trial]) -> _Array:
        for trial in trials:
            self._folder.begin(trial)
        self._own.mkdir(exist_ok=True)
        names = tuple(trial.configuration.name for trial in trials)
        jobs = self._folder.request.jobs
        tasks = f"0-{len(names) - 1}" + (f"%{jobs}" if jobs else "")
        said = self._own.absolute() / "%A_%a.txt"
        asked = _Array(0, names, f"prismdbg-sweep-{secrets.token_hex(8)}")
        options = [f"--array={tasks}", f"--output={said}", f"--error={said}", f"--job-name={asked.called}"]
        array = self._told(asked, _script(Order(self._folder.request, names)), options)
        self._say(
            f"{counted(len(names), 'configuration')}: array {array.job} of Slurm; all that tasks print: {self._own}"
        )
        return array

    def _told(self, asked: _Array, script: str, options: Sequence[str]) -> _Array:
        """`asked` with its job. Slurm may have taken it also where sbatch fails, does not answer in time, or is ended
        with us: then it is cancelled, and stays on record until a later start has asked for it by its name."""
        record = _record(self._folder)
        write_json(record, asdict(asked))
        try:
            array = replace(asked, job=self._slurm.submit(script, options))
            write_json(record, asdict(array))
        except NoSlurm:
            record.unlink()
            raise
        except BaseException:
            with suppress(FacilityError):
                self._slurm.cancel_named(asked.called)
            raise
        return array

    def _follow(self, array: _Array) -> None:
        """Until all of its tasks have ended. Whoever is interrupted here cancels them."""
        left = dict(enumerate(array.names))
        try:
            while left:
                self._note(array, left, self._states(array))
                if left:
                    time.sleep(POLL_S)
        except BaseException:
            self._cancel(array)
            raise
        _record(self._folder).unlink(missing_ok=True)

    def _note(self, array: _Array, left: dict[int, str], states: Mapping[int, str] | None) -> None:
        """Removes those from `left` that have ended."""
        if states is None:
            return
        for number in [each for each in left if states.get(each, "COMPLETED") in ENDED]:
            self._end(array, number, left.pop(number), states.get(number, ""), len(left))

    def _end(self, array: _Array, number: int, name: str, state: str, left: int) -> None:
        if state == "COMPLETED" or self._folder.is_complete(name):
            self._say(f"{name}: ended; {left} to go")
            return
        printed = self._own / f"{array.job}_{number}.txt"
        told = "" if state in ("", "COMPLETED", "FAILED") else f"Slurm says {state}"
        self._why[name] = ": ".join(part for part in (told, last_error(printed)) if part) or "its task ended early"
        self._say(f"{name} failed; {left} to go: {self._why[name]}; all its task printed: {printed}")

    def _states(self, array: _Array) -> Mapping[int, str] | None:
        """None while Slurm does not answer, which is reported once."""
        try:
            states = self._slurm.states(array.job)
        except FacilityError as error:
            if str(error) != self._problem:
                self._say(f"{error}; the array continues, and Slurm is asked again")
            self._problem = str(error)
            return None
        self._problem = ""
        return states

    def _cancel(self, array: _Array) -> None:
        """And waits until its tasks have ended, so that nothing runs when the sweep is over."""
        self._slurm.cancel(array.job)
        end_s = time.monotonic() + longest_end_s()
        while time.monotonic() < end_s:
            states = self._states(array)
            if states is not None and all(state in ENDED for state in states.values()):
                _record(self._folder).unlink(missing_ok=True)
                return
            time.sleep(POLL_S)


def check_none_left(folder: SweepFolder) -> None:
    """`UsageError` where an array of an earlier start may still fill this folder."""
    array = _stored(folder)
    with suppress(FacilityError):  # it is not known to have ended
        array = _left(folder, Slurm(()))
    if array is not None:
        known = str(array.job or array.called)
        hint = f"give --on slurm to join it; after `scancel {'' if array.job else '--name='}{known}`, too"
        raise UsageError(f"array {known} of Slurm may still run configurations in {folder.path}", hint=hint)


def _script(order: Order) -> str:
    """What sbatch gets on its standard input: a file would keep the secrets of a command."""
    words = [sys.executable, "-m", array_task.__name__]
    return f"#!/bin/sh\nexec {shlex.join(words)} <<'{_MARK}'\n{order.to_json()}\n{_MARK}\n"


def _own(folder: SweepFolder) -> Path:
    return folder.path / "slurm"


def _record(folder: SweepFolder) -> Path:
    return _own(folder) / "array.json"


def _left(folder: SweepFolder, slurm: Slurm) -> _Array | None:
    """What an earlier start submitted, with its job. One whose job that start never learned is asked for by its name,
    and forgotten where Slurm has none of that name. `FacilityError` where the controller does not answer."""
    array = _stored(folder)
    if array is None or array.job:
        return array
    if not (job := slurm.find(array.called) if array.called else 0):
        _record(folder).unlink()
        return None
    found = replace(array, job=job)
    write_json(_record(folder), asdict(found))
    return found


def _stored(folder: SweepFolder) -> _Array | None:
    path = _record(folder)
    if not path.is_file():
        return None
    stored = checked_json.checked(_Stored, checked_json.read(path).value, str(path))
    return _Array(stored["job"], tuple(stored["names"]), stored.get("called", ""))
