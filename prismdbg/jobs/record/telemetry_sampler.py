"""Reads sensors beside a job, in a process of its own: a driver that hangs or crashes takes nothing else with it.

Its failure is reported once, and the job and the supervisor go on. It ends when its input does, which is also when the
supervisor is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from prismdbg.telemetry import sampler

STOP_S = 5.0
_OUT_OF_SIGHT = "the rank runs on another machine or in a namespace that cannot be seen from the supervisor"
_OTHER_CLOCK = "the rank is in a time namespace of its own: its times are of another clock"


class TelemetrySampler:
    """`report` takes a problem. With `period_ns` 0 nothing is started."""

    def __init__(self, folder: Path, period_ns: int, report: Callable[[str], None]) -> None:
        self._folder = folder
        self._period_ns = period_ns
        self._report = report
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if not self._period_ns:
            return
        packages = str(Path(__file__).parents[3])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (packages, os.environ.get("PYTHONPATH")))),
        }
        command = [sys.executable, "-P", "-m", sampler.__name__, str(self._folder), str(self._period_ns)]
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C at a terminal is not meant for it
            )
        except OSError as error:
            self._report(f"no telemetry is recorded: its sampler cannot be started: {error}")

    def watch(self, folder: str, pid: int | None) -> None:
        """A rank, by the name of its log folder. None: it cannot be seen from here."""
        if self._process is None or self._process.stdin is None:
            return
        if pid is None:
            line = f"{folder} - {_OUT_OF_SIGHT}\n"
        elif _other_clock(pid):
            line = f"{folder} - {_OTHER_CLOCK}\n"
        else:
            line = f"{folder} {pid} -\n"
        try:
            os.set_blocking(self._process.stdin.fileno(), False)
            os.write(self._process.stdin.fileno(), line.encode())
        except OSError as error:  # it has ended, or hangs and its pipe is full
            self._report(f"telemetry of rank {folder} is not recorded: the sampler accepts no commands: {error}")

    def stop(self) -> None:
        """Lets it write what it has read, and ends it where that takes too long."""
        if self._process is None or self._process.stdin is None:
            return
        code = self._process.poll()
        try:
            self._process.stdin.close()
        except OSError as error:  # nothing is buffered, so nothing is lost
            self._report(f"the sampler of telemetry could not be told to end: {error}")
        try:
            last = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._report(f"the sampler of telemetry did not end within {STOP_S:g} s and was killed")
            return
        if code is not None or last != 0:
            self._report(f"telemetry is incomplete: its sampler ended early, with exit code {last}")


def _other_clock(pid: int) -> bool:
    """Whether times of a process cannot be compared with ours."""
    try:
        return Path(f"/proc/{pid}/ns/time").readlink() != Path("/proc/self/ns/time").readlink()
    except OSError:  # it has ended, is another user's, or the kernel has no such namespaces
        return False
