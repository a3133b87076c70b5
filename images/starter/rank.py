"""The rank itself: restored from a checkpoint or started, without any capability. Standard library only."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confine import be_nobody_special
from engine import Engine
from limits import limit_self
from output import open_output, standard_streams
from rooted_tree import RootedTree
from syscalls import PR_SET_PDEATHSIG, PlaceError, prctl

Spec = dict[str, Any]
Report = Callable[..., None]
# What a path can be at fault for; anything else is this machine's.
_OF_THE_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENOEXEC)


class FieldError(PlaceError):
    """The program cannot be started with what `field` of the capsule's rank.json says."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


def restore_images(engine: Engine, asked: dict[str, Any], output: str, report: Report) -> int:
    """Its PID. What the engine needs beside the images must be in place. All of it is left stopped."""
    streams = standard_streams(asked["standards"], output)
    try:
        engine.restore(asked, streams)
    finally:
        for number in streams.values():
            os.close(number)
    report("restored", pid=asked["root_pid"])
    return int(asked["root_pid"])


def start(spec: Spec, report: Report) -> int:
    """Execs the program without any capability. `FieldError` where the capsule's words are why it cannot be started."""
    program = spec["program"]
    broken, said = os.pipe()
    rank = os.fork()
    if rank == 0:
        try:
            become(spec, program)
        except BaseException as error:
            os.write(said, f"{getattr(error, 'field', '')}\n{error}".encode())
        finally:
            os._exit(127)
    os.close(said)
    with os.fdopen(broken, "rb") as pipe:
        field, _, reason = pipe.read().decode().partition("\n")
    if field:
        raise FieldError(field, reason)
    if reason:
        raise PlaceError(f"cannot start {program['argv'][0]}: {reason}")
    report("started", pid=rank)
    return rank


def become(spec: Spec, program: dict[str, Any]) -> None:
    os.setsid()
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(open_output(spec["output"]), 1)
    os.dup2(1, 2)
    with named_in("cwd"):
        work_in(program["cwd"])
    os.umask(program.get("umask", 0o022))
    limit_self(spec)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    be_nobody_special(spec)
    if spec["isolation"] == "none":  # elsewhere it ends with its namespace, and its parent in a restore ends too
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user would clear it
    with named_in("executable"):
        os.execve(program["executable"], program["argv"], program["env"])


@contextmanager
def named_in(field: str) -> Iterator[None]:
    """The path in use is that of `field`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OF_THE_PATH:
            raise
        raise FieldError(field, os.strerror(error.errno)) from error


def work_in(folder: str) -> None:
    """The name is the capsule's, and this process still has the starter's descriptors and rights: through a link of
    /proc it would stand outside of its place."""
    with RootedTree() as tree:
        found = tree.open(folder, os.O_PATH | os.O_DIRECTORY)
    os.fchdir(found)
    os.close(found)
