"""The starter as a child of this process: what the local and the plain runtime have in common."""

from __future__ import annotations

import subprocess
import sys

from prismdbg.runtime.lifeline import Lifeline
from prismdbg.runtime.spec import ReplaySpec
from prismdbg.runtime.started_rank import StartedRank
from prismdbg.runtime.starter_spec import SPEC, starter_command, starter_file

_END_S = 10.0


class StarterProcess:
    """`Place` of a starter that was started directly."""

    def __init__(self, process: subprocess.Popen[bytes], kind: str) -> None:
        self._process = process
        self._kind = kind

    def outer_pid(self) -> int | None:
        return self._process.pid if self._process.poll() is None else None

    def ended(self) -> int | None:
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def remove(self) -> None:
        """The starter is asked first: it ends what it started and reaps it; the kernel does if it is killed."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def describe(self) -> str:
        return f"{self._kind} (process {self._process.pid})"


def start_process(spec: ReplaySpec, kind: str) -> StartedRank:
    """Starts the starter on the session's spec file, which must have been written."""
    lifeline = Lifeline(spec.control)
    try:
        process = subprocess.Popen(
            starter_command([sys.executable], starter_file(), spec.control / SPEC),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        lifeline.let_go()
        raise
    return StartedRank(spec, StarterProcess(process, kind), lifeline).until_running()
