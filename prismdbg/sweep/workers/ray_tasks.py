"""Configurations as tasks of Ray, which runs them where it has a CPU. They end with the sweep that submitted them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prismdbg.errors import FacilityError
from prismdbg.jobs.capture.capture import Say
from prismdbg.sweep.folder import SweepFolder
from prismdbg.sweep.request import Trial
from prismdbg.sweep.workers.array_task import run
from prismdbg.sweep.workers.guardian import longest_end_s
from prismdbg.sweep.workers.order import Order

_ANSWERS_S = 30.0
_CONNECT = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"


class RayTasks:
    """`folder`: on a file system that all nodes see at the same path. address: of a cluster; empty for the one that
    RAY_ADDRESS names, or a new one on this machine. answers_s: how long a cluster may take to answer."""

    def __init__(self, folder: SweepFolder, address: str, say: Say, answers_s: float = _ANSWERS_S) -> None:
        self._folder = folder
        self._address = address
        self._say = say
        self._answers_s = answers_s
        self._ray = _imported()

    def run(self, trials: Sequence[Trial]) -> dict[str, str]:
        self._connect()
        try:
            return self._run([trial.configuration.name for trial in trials])
        finally:
            self._ray.shutdown()

    def _connect(self) -> None:
        if cluster := self._address or os.environ.get("RAY_ADDRESS", ""):
            _require_answer(cluster, self._answers_s)
        try:
            self._ray.init(address=self._address or None, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise _unreachable(str(error)) from error

    def _run(self, names: Sequence[str]) -> dict[str, str]:
        waiting, running, why = list(reversed(names)), dict[Any, str](), dict[str, str]()
        at_once = self._folder.request.jobs or len(names)
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    name = waiting.pop()
                    running[self._submitted(name)] = name
                ended, _ = self._ray.wait(list(running), num_returns=1)
                for task in ended:
                    name = running.pop(task)
                    why |= self._ended(name, task, len(waiting) + len(running))
        finally:
            self._cancel(list(running))
        return why

    def _submitted(self, name: str) -> Any:
        order = Order(self._folder.request, (name,)).to_json()
        task = self._ray.remote(num_cpus=1, max_retries=0)(run_in)
        return task.options(name=name).remote(str(Path.cwd()), order)

    def _ended(self, name: str, task: Any, left: int) -> dict[str, str]:
        try:
            why = str(self._ray.get(task))
        except self._ray.exceptions.RayError as error:
            why = f"Ray says: {str(error).strip().splitlines()[-1]}"
        failed = f"{name} failed; {left} to go: {why}; all it printed: {self._folder.output_of(name)}"
        self._say(failed if why else f"{name}: ended; {left} to go")
        return {name: why} if why else {}

    def _cancel(self, tasks: Sequence[Any]) -> None:
        """And waits for them, so that nothing runs when the sweep is over."""
        for task in tasks:
            self._ray.cancel(task)
        if tasks:
            self._ray.wait(tasks, num_returns=len(tasks), timeout=longest_end_s())


def run_in(folder: str, order: str) -> str:
    """A task: why its configuration failed; empty where its run is complete."""
    os.chdir(folder)
    asked = Order.from_json(order)
    return run(asked, asked.names[0])


def _require_answer(address: str, bound_s: float) -> None:
    """By a process that connects and ends: Ray tries for many minutes, and nothing in this process ends that."""
    command = [sys.executable, "-c", _CONNECT, address]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=bound_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise _unreachable(f"{address} did not answer within {bound_s:g} seconds") from error
    if tried.returncode:
        raise _unreachable(next(reversed(tried.stderr.strip().splitlines()), f"exit code {tried.returncode}"))


def _unreachable(why: str) -> FacilityError:
    hint = "start a cluster with `ray start --head`, or give its address with --on ray:ADDRESS"
    return FacilityError(f"Ray cannot be reached: {why}", hint=hint)


def _imported() -> Any:
    try:
        import ray
    except ImportError as error:
        raise FacilityError("Ray is not installed", hint="pip install 'prismdbg[ray]', or leave --on out") from error
    return ray
