"""How criu is started in a place that the rank may have changed: nothing of the rank's has a say in it. Standard
library only.

Its loader, its program and its libraries are opened before the rank runs, and named by descriptors from then on. It
reads no configuration, loads no plugin, and finds no program to start.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from confine import LastPid
from syscalls import PlaceError, open_detached

# /proc cannot be given another name, and nobody can make a file in it.
NO_PROGRAMS, NO_PLUGINS = "/proc/self/nowhere", "/proc/self/ns"  # the second must be there
CLEAR = 100  # PIDs beyond the rank's that are left to criu


class Criu:
    """`command`: how it is started, paths and all. Make it before the view is confined."""

    def __init__(self, command: list[str]) -> None:
        self._fds: list[int] = []
        self._command = [self._opened(word) if word.startswith("/") else word for word in command]
        self._last_pid = LastPid()

    def run(self, verb: str, options: list[str], *, inherited: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        command = [*self._command, verb, "--no-default-config", "--libdir", NO_PLUGINS, *options]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=2,
            env={"PATH": NO_PROGRAMS},
            pass_fds=(*self._fds, *inherited),
        )

    def keep_clear_of(self, pids: list[int]) -> None:
        """criu's own processes must not be given a PID that the rank had."""
        if 1 in pids:
            raise PlaceError("the rank was the first process of its container: PID 1 cannot be assigned again")
        most = self._last_pid.most
        for last in (max(pids) + CLEAR, *range(1000, most, CLEAR)):
            if last + CLEAR < most and not any(last <= pid <= last + CLEAR for pid in pids):
                self._last_pid.set(last)
                return
        raise PlaceError("the rank's processes leave no PID free for criu")

    def _opened(self, path: str) -> str:
        is_folder = Path(path).is_dir()
        self._fds.append(open_detached(path) if is_folder else os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return within(self._fds[-1])


def within(descriptor: int) -> str:
    """A path to what is open, whatever became of its name; a folder's may be gone on with."""
    return f"/proc/self/fd/{descriptor}"


def open_folder(path: str | Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
