"""How criu is started in a place that the rank may have changed: nothing of the rank's has a say in it. Standard
library only.

Its loader, its program and its libraries are opened before the rank runs, and named by descriptors from then on. It
reads no configuration, loads no plugin, and finds no program to start.
"""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path
from typing import Any

from confine import LastPid
from engine import DumpError, RestoreError
from syscalls import PlaceError, open_read_only

# /proc cannot be given another name, and nobody can make a file in it.
NO_PROGRAMS, NO_PLUGINS = "/proc/self/nowhere", "/proc/self/ns"  # the second must be there
READ_IN_PLACE = ("/run/criu.kdat",)  # what the kernel can do: it is remembered there, if it may be
GHOST_LIMIT_BYTES = 16 << 30  # of an unlinked file that the image keeps
FREEZE_S = 90.0  # all that criu's own bound covers
CLEAR = 100  # PIDs beyond the rank's that are left to criu


class Criu:
    """`Engine`. `command`: how it is started, paths and all. Make it before the view is confined."""

    def __init__(self, command: list[str]) -> None:
        self._fds: list[int] = []
        self._command = [self._opened(word) if word.startswith("/") else word for word in command]
        self._last_pid = LastPid()

    def dump(self, asked: dict[str, Any]) -> None:
        bound_s = asked["timeout_s"]
        into, work = open_folder(asked["images"]), open_folder(asked["work"])
        options = ["--tree", str(asked["root_pid"]), "--images-dir", within(into), "--work-dir", within(work)]
        options += ["-v4", "--log-file", asked["log"]]
        options += ["--leave-stopped", "--tcp-established", "--ext-unix-sk", "--file-locks", "--network-lock", "skip"]
        options += ["--ghost-limit", str(GHOST_LIMIT_BYTES), "--timeout", str(max(int(min(bound_s, FREEZE_S)) - 2, 1))]
        for _, key in asked["standards"]:
            options += ["--external", key]
        if not asked["leads_session"]:
            options.append("--shell-job")
        try:
            process = self.run("dump", options, inherited=(into, work))
        finally:
            os.close(into)
            os.close(work)
        if (code := _ended(process, bound_s)) is None:
            raise DumpError(f"criu did not save the rank within {bound_s:g} s")
        if code != 0:
            raise DumpError("criu could not save the rank")

    def restore(self, asked: dict[str, Any], streams: dict[str, int]) -> None:
        """Names its folders by descriptors: the rank has no way to where they lie."""
        images, work = open_folder(asked["images"]), open_folder(asked["work"])
        options = ["--images-dir", within(images), "--work-dir", within(work), "-v4", "--log-file", asked["log"]]
        options += _options_of_restore(asked, streams)
        self.keep_clear_of(asked["pids"])
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        try:
            process = self.run("restore", options, inherited=(images, work, *streams.values()))
        finally:
            os.close(images)
            os.close(work)
        if (code := _ended(process, asked["timeout_s"])) is None:
            raise RestoreError(f"criu did not restore the rank within {asked['timeout_s']:g} s")
        if code != 0:
            raise RestoreError("criu could not restore the rank")

    def run(self, verb: str, options: list[str], *, inherited: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        command = [*self._command, verb, "--no-default-config", "--libdir", NO_PLUGINS, *options]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=2,
            env={"PATH": NO_PROGRAMS, "GNUTLS_SYSTEM_PRIORITY_FILE": NO_PROGRAMS, "LC_ALL": "C", "TZ": "UTC0"},
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
        self._fds.append(open_read_only(path) if is_folder else os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return within(self._fds[-1])


def _options_of_restore(asked: dict[str, Any], streams: dict[str, int]) -> list[str]:
    options = ["--restore-detached", "--leave-stopped", "--tcp-close", "--ext-unix-sk", "--file-locks"]
    options.append("--skip-file-rwx-check")  # folders made here need not have the modes they had
    if not asked["leads_session"]:
        options.append("--shell-job")
    for key, number in streams.items():
        options += ["--inherit-fd", f"fd[{number}]:{key}"]
    if any(key.startswith("tty[") for key in streams):
        options.append("--deprecated")  # criu calls a terminal from outside that, though it dumped it so itself
    return options


def _ended(process: subprocess.Popen[bytes], bound_s: float) -> int | None:
    """Its exit code; None where it was killed at its bound."""
    try:
        return process.wait(bound_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def within(descriptor: int) -> str:
    """A path to what is open, whatever became of its name; a folder's may be gone on with."""
    return f"/proc/self/fd/{descriptor}"


def open_folder(path: str | Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
