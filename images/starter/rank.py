"""The rank itself: restored from a checkpoint or started, without any capability. Standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from beneath import Tree
from confine import be_nobody_special
from engine import Engine
from exact_paths import open_terminals
from limits import limit_self
from syscalls import PR_SET_PDEATHSIG, PlaceError, prctl

Spec = dict[str, Any]
Report = Callable[..., None]
TIOCSPTLCK, TIOCGPTPEER = 0x40045431, 0x5441  # linux/tty ioctls: unlock, and the other end


def restore_images(engine: Engine, asked: dict[str, Any], output: str, report: Report, *, stopped: bool = False) -> int:
    """Its PID. What the engine needs beside the images must be in place. `stopped`: it is left so."""
    began = time.monotonic_ns()
    streams = standard_streams(asked["standards"], output)
    try:
        engine.restore(asked, streams, stopped=stopped)
    finally:
        for number in streams.values():
            os.close(number)
    report("restored", pid=asked["root_pid"], elapsed_ns=time.monotonic_ns() - began)
    return int(asked["root_pid"])


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
    ours, theirs = new_terminal()
    copy = open_output(output)

    def pump() -> None:
        with contextlib.suppress(OSError):  # EIO: nobody has it open any more
            while data := os.read(ours, 1 << 16):
                os.write(copy, data.replace(b"\r\n", b"\n"))

    threading.Thread(target=pump, daemon=True).start()
    return theirs


def new_terminal() -> tuple[int, int]:
    """Its two ends, through no link: `/dev/ptmx` is one, and the rank may have put another one there."""
    try:
        ours = open_terminals()
    except PermissionError:  # a plain process of a user: the machine's own terminals
        return os.openpty()
    fcntl.ioctl(ours, TIOCSPTLCK, struct.pack("i", 0))
    return ours, fcntl.ioctl(ours, TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY)


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
    work_in(program["cwd"])
    os.umask(program.get("umask", 0o022))
    limit_self(spec)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    be_nobody_special(spec)
    if spec["isolation"] == "none":  # elsewhere it ends with its namespace, and its parent in a restore ends too
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user would clear it
    os.execve(program["executable"], program["argv"], program["env"])


def work_in(folder: str) -> None:
    """The name is the capsule's, and this process still has the starter's descriptors and rights: through a link of
    /proc it would stand outside of its place."""
    with Tree() as tree:
        found = tree.open(folder, os.O_PATH | os.O_DIRECTORY)
    os.fchdir(found)
    os.close(found)
