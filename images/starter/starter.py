"""The first program of a replay's container or namespaces: makes the place, starts or restores the rank, and reaps.

Run by prismdbg's own interpreter as `python -I -S starter.py spec.json`, never by one that a capsule names; it and
the files beside it need only the standard library. The spec is written by `prismdbg.runtime.starter_spec`. What
happens is reported in JSON lines to the spec's `status` file: `starting`, then `restored` or `started`, then `exited`,
or `failed` at any time, and `met` when the rank has met a limit.

Two processes: the outer one waits, bounded, for the rank to end or for its client to go away (the other end of a
FIFO); the inner one, first process of its PID namespace where it may have one, does the rest. When the outer one ends
for any reason the kernel kills the inner one and with it everything in the namespace.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parent))  # -I leaves it out

import user_namespace  # noqa: E402
from checkpoints import Checkpoints, attend, let_go, listen  # noqa: E402
from confine import be_opaque, keep_only_needed  # noqa: E402
from engine import RestoreError  # noqa: E402
from gpu_state import GpuError  # noqa: E402
from limits import Met, Room, used_bytes  # noqa: E402
from output import hold_output  # noqa: E402
from place import Kept, make_place  # noqa: E402
from private_folders import hold_private, seen_by_descriptor  # noqa: E402
from rank import FieldError, restore_images, start  # noqa: E402
from rooted_tree import require_own  # noqa: E402
from syscalls import (  # noqa: E402
    CLONE_NEWCGROUP,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    PlaceError,
    check,
    libc,
    prctl,
)

FAILED, OUT_OF_TIME, CLIENT_GONE, NO_ROOM = 125, 124, 129, 122
LOOK_MS = 250  # between two looks at how much the rank has written
OUTPUT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
Spec = dict[str, Any]


class Told(BaseException):
    """A signal asked the inner process to end."""


def main(path: str) -> int:
    os.umask(0o022)  # not that of the command: the rank, which may be another user, reaches its files
    spec: Spec = json.loads(Path(path).read_text())
    report = Reporter(Path(spec["status"]))
    log = os.open(Path(path).with_name("starter.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, 2)  # a container that removes itself takes its own log along
    report("starting", pid=os.getpid())
    if spec["isolation"] == "none":
        be_opaque()  # elsewhere it has capabilities that the rank lacks, which does the same
    try:
        met = Met(spec)
        own = os.open(spec["own"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        room = Room(own, spec["limits"]["disk_bytes"])
        spec |= {"users": users(spec)}
        if spec["users"] is not None:  # root of this machine can make no file where it is not among the owners
            os.close(os.open(Path(spec["output"]).name, OUTPUT_FLAGS, 0o600, dir_fd=own))
        unshare(spec)
        private = hold_private(spec)
        lifeline = os.open(spec["lifeline"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if nobody_holds(lifeline):
            report("failed", what="the process that started this replay has ended", code=CLIENT_GONE)
            return CLIENT_GONE
        inner = os.fork()
        if inner == 0:
            os.close(lifeline)
            os.close(own)  # from a folder of the host a way leads up
            run_inner(spec, private, met, report)
        return watch(inner, lifeline, own, room, spec, met, report)
    except (OSError, PlaceError) as error:
        report("failed", what=str(error))
        return FAILED


class Reporter:
    """One line per event, each in one write: appended to a file, or said on a connection where the path is a socket.
    Opened before the root changes, and before there is a rank."""

    def __init__(self, path: Path) -> None:
        if path.is_socket():
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(path))
            self._fd = connection.detach()
        else:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def __call__(self, event: str, **facts: object) -> None:
        line = json.dumps({"event": event, "time_ns": time.time_ns(), **facts})
        os.write(self._fd, line.encode() + b"\n")


# ---- the outer process


def unshare(spec: Spec) -> None:
    """New namespaces for all that is forked from here on."""
    kind = spec["isolation"]
    if kind == "none":
        return
    flags = CLONE_NEWPID | CLONE_NEWNS
    if kind == "namespaces":
        flags |= CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP
    uid, gid = os.getuid(), os.getgid()
    if kind == "namespaces" and os.geteuid() != 0:
        flags |= CLONE_NEWUSER
    check(libc.unshare(flags), "create namespaces")
    if flags & CLONE_NEWUSER:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def users(spec: Spec) -> int | None:
    """The user namespace of the rank, opened, where it gets one. Where this machine makes none, the log says why."""
    if not user_namespace.wants_namespace(spec):
        return None
    try:
        return user_namespace.make_namespace()
    except (OSError, PlaceError) as error:
        user_namespace.tell(error)
        return None


def nobody_holds(lifeline: int) -> bool:
    """A client that died before this end was opened is never told of by a hang-up."""
    try:
        return os.read(lifeline, 1) == b""
    except BlockingIOError:
        return False


def watch(inner: int, lifeline: int, own: int, room: Room, spec: Spec, met: Met, report: Reporter) -> int:
    """Until the inner process ends, the client goes away, we are told to end, or the time is up."""
    # Killing the first process of a PID namespace ends all of it; without one it must do that itself.
    how = signal.SIGTERM if spec["isolation"] == "none" else signal.SIGKILL
    signal.signal(signal.SIGTERM, lambda *_: os.kill(inner, how))
    ended = os.pidfd_open(inner)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(lifeline, select.POLLHUP)
    deadline, is_full, told = time.monotonic() + spec["longest_s"], False, set[str]()
    while not (ready := {fd for fd, _ in poll.poll(LOOK_MS)}) and time.monotonic() < deadline:
        if (counted := met.counted()) > told:
            report("met", limits=sorted(counted))
            told = counted
        if is_full := used_bytes(own) > spec["limits"]["disk_bytes"] or not room.is_left():
            break
    if ended not in ready:
        os.kill(inner, how)
    _, status = os.waitpid(inner, 0)
    if ended in ready:
        return exit_code(status)
    if lifeline in ready:
        report("failed", what="the process that started this replay has ended", code=CLIENT_GONE)
        return CLIENT_GONE
    if is_full:
        why = "the replay's folder is larger than its limit, or little is left on its disk"
        report("failed", what=why, code=NO_ROOM, limits=["disk"])
        return NO_ROOM
    report("failed", what=f"the replay took longer than its limit of {spec['longest_s']:g} s", code=OUT_OF_TIME)
    return OUT_OF_TIME


def exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


# ---- the inner process


def run_inner(spec: Spec, private: dict[str, int], met: Met, report: Reporter) -> NoReturn:
    code = FAILED
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        # A first process is ended by a kill from outside; from inside it hears only signals that it has a handler for.
        signal.signal(signal.SIGTERM, told_to_end if spec["isolation"] == "none" else signal.SIG_IGN)
        keep_only_needed()
        kept = make_place(spec)
        spec = seen_by_descriptor(spec, private)
        spec |= {"output": hold_output(spec["output"]), "output_path": spec["output"]}
        import_nothing_more()
        if spec["saving"]:
            attend_checkpoints(spec, kept, met, report)
        code = reap_until(bring_up(spec, kept, report))
        report("exited", code=code, limits=met.names(code))
    except FieldError as error:
        report("failed", what=str(error), field=error.field)
    except (PlaceError, GpuError) as error:
        report("failed", what=str(error))
    except RestoreError as error:
        report("failed", what=str(error), engine=True)
    except Told:
        code = 128 + signal.SIGTERM
    except BaseException as error:
        report("failed", what=f"the starter failed: {type(error).__name__}: {error}")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end_children()
        os._exit(code)


def import_nothing_more() -> None:
    """In the rank's place a module could be the rank's. What is needed is here by now."""
    sys.path.clear()
    sys.path_importer_cache.clear()


def bring_up(spec: Spec, kept: Kept, report: Reporter) -> int:
    """The rank at its origin; its PID."""
    if spec["restore"]:
        assert kept.origin is not None and kept.gpus is not None
        require_own(spec["restore"]["names"])
        kept.gpus.require(spec["restore"]["gpu_pids"])
        rank = restore_images(kept.origin, spec["restore"], spec["output"], report)
        let_go(spec, spec["restore"]["pids"])
        kept.gpus.resume(spec["restore"]["gpu_pids"], spec["restore"]["timeout_s"])
        return rank
    return start(spec, report)


def attend_checkpoints(spec: Spec, kept: Kept, met: Met, report: Reporter) -> NoReturn:
    """The place stays when the rank ends: one can still go back."""
    assert kept.saving is not None and kept.gpus is not None
    checkpoints, control = Checkpoints(spec, kept.saving, kept.gpus, met, report), listen(spec)
    if name := spec["saving"]["start_from"]:
        checkpoints.return_to(name)
    else:
        checkpoints.rank = bring_up(spec, kept, report)
    attend(checkpoints, control, report)


def told_to_end(*_: object) -> NoReturn:
    raise Told


def end_children() -> None:
    """Kills and reaps whatever is left below us; orphans come to us as we are their reaper."""
    try:
        while True:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            for child in children:
                os.kill(int(child), signal.SIGKILL)
            os.waitpid(-1, 0)
    except (ChildProcessError, ProcessLookupError, FileNotFoundError):
        return


def reap_until(rank: int) -> int:
    """Everything that ends below us is reaped; the rank's own end is ours."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == rank:
            return exit_code(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
