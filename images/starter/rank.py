"""The rank itself: restored from a checkpoint or started, without any capability. Standard library only."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from confine import be_nobody_special
from engine import Engine
from limits import limit_self
from output import open_output, standard_streams
from rooted_tree import RootedTree
from syscalls import PR_SET_PDEATHSIG, PlaceError, prctl

Spec = dict[str, Any]
Report = Callable[..., None]


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
    with RootedTree() as tree:
        found = tree.open(folder, os.O_PATH | os.O_DIRECTORY)
    os.fchdir(found)
    os.close(found)
