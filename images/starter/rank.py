"""The rank itself: restored from a process image or started, without any capability. Standard library only."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from syscalls import (
    CAPABILITY_VERSION_3,
    PR_CAPBSET_DROP,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    PlaceError,
    check,
    libc,
    prctl,
)

Spec = dict[str, Any]
Report = Callable[..., None]


class RestoreError(Exception):
    """criu's own log has the reason."""


def restore_images(criu: dict[str, Any], output: str, report: Report) -> int:
    """Its PID. What criu needs beside the images must be in place."""
    began = time.monotonic_ns()
    streams = standard_streams(criu["standards"], output)
    try:
        _run_restore(criu, streams)
    finally:
        for number in streams.values():
            os.close(number)
    report("restored", pid=criu["root_pid"], elapsed_ns=time.monotonic_ns() - began)
    return int(criu["root_pid"])


def _run_restore(criu: dict[str, Any], streams: dict[str, int]) -> None:
    command = [*criu["command"], "restore", "--images-dir", criu["images"], "--work-dir", criu["work"]]
    command += ["--restore-detached", "--tcp-close", "--ext-unix-sk", "--file-locks", "-v4", "--log-file", criu["log"]]
    command.append("--skip-file-rwx-check")  # folders made here need not have the modes they had
    if not criu["leads_session"]:
        command.append("--shell-job")
    for key, number in streams.items():
        command += ["--inherit-fd", f"fd[{number}]:{key}"]
    if any(key.startswith("tty[") for key in streams):
        command.append("--deprecated")  # criu calls a terminal from outside that, though it dumped it so itself
    keep_clear_of(criu["pids"])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, pass_fds=tuple(streams.values()))
    try:
        process.wait(criu["timeout_s"])
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise RestoreError(f"criu did not restore the rank within {criu['timeout_s']:g} s") from None
    if process.returncode != 0:
        raise RestoreError("criu could not restore the rank")


def standard_streams(standards: list[tuple[int, str]], output: str) -> dict[str, int]:
    """What takes the place of each file, pipe or terminal that was on standard input and output."""
    streams: dict[str, int] = {}
    for number, key in standards:
        if key in streams or key == "dev/null":
            continue
        if key.startswith("tty["):
            streams[key] = terminal(output)
        elif number == 0:
            streams[key] = os.open("/dev/null", os.O_RDONLY)
        else:
            streams[key] = open_output(output)
    return streams


def hold_output(path: str) -> str:
    """Opens it before the rank can replace the name. A path that always leads to this very file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    held = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(held).st_mode):
        raise PlaceError(f"{path} is not a regular file")
    return f"/proc/self/fd/{held}"


def open_output(held: str) -> int:
    return os.open(held, os.O_WRONLY | os.O_APPEND)


def terminal(output: str) -> int:
    """A rank that had a terminal gets one; a thread of ours copies what is written there."""
    ours, theirs = os.openpty()
    copy = open_output(output)

    def pump() -> None:
        with contextlib.suppress(OSError):  # EIO: nobody has it open any more
            while data := os.read(ours, 1 << 16):
                os.write(copy, data.replace(b"\r\n", b"\n"))

    threading.Thread(target=pump, daemon=True).start()
    return theirs


def keep_clear_of(pids: list[int]) -> None:
    """criu's own processes must not be given a PID that the rank had."""
    if 1 in pids:
        raise PlaceError("the rank was the first process of its container: PID 1 cannot be given again")
    limit = int(Path("/proc/sys/kernel/pid_max").read_text())
    for last in (max(pids) + 100, *range(1000, limit, 100)):
        if last + 100 < limit and not any(last <= pid <= last + 100 for pid in pids):
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(last))
            return
    raise PlaceError("the rank's processes leave no PID free for criu")


def start(spec: Spec, report: Report) -> int:
    """Execs the program without any capability; a program that cannot be started is a failure of ours."""
    program = spec["program"]
    broken, said = os.pipe()
    rank = os.fork()
    if rank == 0:
        try:
            become(spec, program)
        except BaseException as error:
            os.write(said, str(error).encode())
        finally:
            os._exit(127)
    os.close(said)
    with os.fdopen(broken, "rb") as pipe:
        reason = pipe.read().decode()
    if reason:
        raise PlaceError(f"cannot start {program['argv'][0]}: {reason}")
    report("started", pid=rank)
    return rank


def become(spec: Spec, program: dict[str, Any]) -> None:
    os.setsid()
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(open_output(spec["output"]), 1)
    os.dup2(1, 2)
    os.chdir(program["cwd"])
    os.umask(program.get("umask", 0o022))
    drop_privileges(spec)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.execve(program["executable"], program["argv"], program["env"])


def drop_privileges(spec: Spec) -> None:
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused where there is nothing to drop
    if os.geteuid() == 0 and spec["uid"] != 0:
        os.setgroups([])
        os.setresgid(*(spec["gid"],) * 3)
        os.setresuid(*(spec["uid"],) * 3)
    if spec["isolation"] == "none":  # elsewhere it ends with its namespace, and criu, its parent in a restore, ends too
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user would clear it
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    check(libc.capset(header, bytes(24)), "drop all capabilities")
