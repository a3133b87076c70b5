"""How the supervisors of one job come together in RUN: the first one makes it, the others join.

What decides is a folder that is renamed to `RUN/nodes`, which only one of several can do; a file server does that as
one step, too. Who joins must be of the same job, and somebody of it must be there. A RUN that one supervisor recorded
gets `RUN/nodes` when its job is started again.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from math import ceil
from pathlib import Path

from prismdbg.errors import UsageError
from prismdbg.jobs.record.nodes.heartbeat import Heartbeat, beat_of, has_ended
from prismdbg.jobs.record.nodes.known_nodes import KnownNodes
from prismdbg.jobs.record.nodes.shared_job import SharedJob
from prismdbg.jobs.storage.file_system_time import file_system_now
from prismdbg.jobs.storage.first_folder import place_first
from prismdbg.jobs.storage.job_nodes import NodeFolder, is_shared, job_file
from prismdbg.jobs.storage.job_restarts import begin_restart, first_attempt, latest_restart, restart_folder
from prismdbg.jobs.storage.run_folder import RunFolder, cannot_be_made, not_empty, read_if_whole, read_json, write_json
from prismdbg.model.plurals import counted
from prismdbg.settings.boot import boot_id
from prismdbg.settings.process_stat import start_ticks

JOIN_BOUND_S = 60.0
PROGRESS_S = 1.0
POLL_S = 0.1
LONGEST_PAUSE_S = 0.5
AT_ONCE, TURN_S = 4, 5.0  # so many others are looked at for so long
PARTS = 10  # then a part of them in each turn, so that none is left out until `JOIN_BOUND_S`
BEFORE = "first-start"  # in place of a node: the supervisor of a job that had only one, before it was started again
_COMING = ".nodes."

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """This supervisor in a RUN with others. `made`: it is the first one, and fills RUN with what all need.
    first_attempt: as the logs of its ranks are counted, which is not 0 in a job that was started again."""

    run: RunFolder
    node: NodeFolder
    heart: Heartbeat
    made: bool
    first_attempt: int = 0


@contextmanager
def enter(path: Path, job: SharedJob, say: Say) -> Iterator[Member]:
    """Makes RUN or joins it, and beats in it for as long as the context lasts. `UsageError` where something else is
    there, another job, or one that nobody runs."""
    run = RunFolder.shared(path)
    try:
        if not is_shared(run) and goes_on(run, job):
            _made_nodes(run, job, lambda coming: _keep_first_start(run, coming))
        if not is_shared(run) and (node := _found(run, path, job)) is not None:
            first = first_attempt(run, job.restart)
            member = Member(run=run, node=node, heart=Heartbeat(node), made=True, first_attempt=first)
        else:
            _refuse_another_job(run, path, job)
            member = _join(run, path, job, say)
    except OSError as error:
        raise cannot_be_made(path, error) from error
    member.heart.once()
    member.heart.begin()
    try:
        yield member
    finally:
        member.heart.end()


def goes_on(run: RunFolder, job: SharedJob) -> bool:
    """Whether an earlier start of this job, which had one supervisor, has made RUN, or was killed while it did so."""
    with suppress(OSError):  # what is wrong with RUN is told by what is done next
        made = read_if_whole(run.run_json)
        is_earlier = made.get("job") == job.id and made.get("restart", 0) < job.restart
        return job.restart > 0 and (is_earlier or _is_half_made(run))
    return False


def _is_half_made(run: RunFolder) -> bool:
    """Nothing was recorded into it. The folder of ranks is made first: without it, it is a folder of the user's."""
    if not run.ranks.is_dir() or run.rank_folders():
        return False
    names = {path.name for path in run.path.iterdir() if not path.name.startswith(".")}
    return names <= {run.ranks.name, run.inject.name, run.config.name}


def _keep_first_start(run: RunFolder, coming: Path) -> None:
    before = NodeFolder(coming / BEFORE)
    before.path.mkdir(mode=0o700)
    write_json(before.about, {"restart": 0})
    write_json(before.supervisor_json, read_if_whole(run.supervisor_json))


def _join(run: RunFolder, path: Path, job: SharedJob, say: Say) -> Member:
    """As one of those who are there, or as the first one of a job that was started again. `UsageError` where this start
    of a job of one supervisor has that one already."""
    if job.restart > latest_restart(run) and begin_restart(run, job.restart):
        made = not run.run_json.is_file()  # who made RUN may not have come as far
    elif job.supervisors == 1:  # the same command once more
        raise not_empty(path)
    else:
        _await_others(run, path, job.restart, say)
        made = False
    own = _joined(run, job.restart)
    first = first_attempt(run, job.restart)
    return Member(run=run, node=own, heart=Heartbeat(own), made=made, first_attempt=first)


def _found(run: RunFolder, path: Path, job: SharedJob) -> NodeFolder | None:
    """The first one publishes the job together with itself; None where another one was faster."""
    if any(not entry.name.startswith(_COMING) for entry in run.path.iterdir()):
        if is_shared(run):  # since a moment ago
            return None
        raise not_empty(path)
    name = _own_name(job.restart)

    def fill(coming: Path) -> None:
        if job.restart:
            restart_folder(coming, job.restart).mkdir(mode=0o700)
        node = NodeFolder(coming / name)
        node.path.mkdir(mode=0o700)
        _describe(node, job.restart)

    return NodeFolder(run.nodes / name) if _made_nodes(run, job, fill) else None


def _made_nodes(run: RunFolder, job: SharedJob, fill: Callable[[Path], None]) -> bool:
    """Whether `RUN/nodes` was made now. `fill`: writes into it before others can see it."""

    def all_of_it(coming: Path) -> None:
        write_json(job_file(coming), {"id": job.id, "supervisors": job.supervisors})
        fill(coming)

    return place_first(run.path / f"{_COMING}{secrets.token_hex(6)}", run.nodes, all_of_it)


def _refuse_another_job(run: RunFolder, path: Path, job: SharedJob) -> None:
    there = str(read_json(job_file(run.nodes)).get("id", ""))
    if there != job.id:
        raise UsageError(
            f"{path} is the RUN of another job ({there}; this one is {job.id})",
            hint="choose a new folder, or give the same --job-id on all nodes",
        )
    if (latest := latest_restart(run)) > job.restart:
        raise UsageError(
            f"{path} belongs to this job, which has been restarted {counted(latest, 'time')} since",
            hint="choose a new folder; `prismdbg status` shows what this one contains",
        )


def _await_others(run: RunFolder, path: Path, restart: int, say: Say) -> None:
    """Until somebody's heart beats and RUN is filled."""
    began, said, pause_s = time.monotonic(), False, POLL_S
    others = _Others(run, restart)
    while True:
        file_system_now(run.nodes)  # what others have made is asked for again
        waited = time.monotonic() - began
        if others.beat(waited) and _is_filled(run):
            return
        if others.have_ended:
            raise not_empty(path)
        if waited > PROGRESS_S and not said:
            said = True
            say(f"{path} exists; waiting up to {JOIN_BOUND_S:g} s for a supervisor of this job")
        if waited > JOIN_BOUND_S:
            raise UsageError(
                f"{path} belongs to this job, but none of its supervisors has been heard of for {waited:.0f} s",
                hint="choose a new folder; `prismdbg status` shows what this one contains",
            )
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)


class _Others:
    """The supervisors that are there before this one: none while who began the restart has not yet joined. Of many that
    go on a few are looked at, others after a while: it is enough to hear of one."""

    def __init__(self, run: RunFolder, restart: int) -> None:
        self._nodes = KnownNodes(run, restart)
        self._old = {node.name for node in self._nodes.now()}
        self._beats: dict[str, int] = {}
        self._ended: set[str] = set()
        self.have_ended = False

    def beat(self, waited_s: float) -> bool:
        """Whether the heart of one has beaten since this one came."""
        there = self._nodes.now()
        turn = int(waited_s / TURN_S)
        count = max(AT_ONCE, ceil(len(there) / PARTS)) if turn else AT_ONCE
        at = turn * count % max(len(there), 1)
        going_on = (node for node in (*there[at:], *there[:at]) if not self._has_ended(node))
        beats = [self._has_beaten(node) for node in islice(going_on, count)]
        self.have_ended = bool(there) and not beats
        return any(beats)

    def _has_ended(self, node: NodeFolder) -> bool:
        if node.name not in self._ended and has_ended(node):
            self._ended.add(node.name)
        return node.name in self._ended

    def _has_beaten(self, node: NodeFolder) -> bool:
        beat = beat_of(node)
        first = self._beats.setdefault(node.name, beat if node.name in self._old else -1)
        return beat not in (-1, first)


def _is_filled(run: RunFolder) -> bool:
    """By a list of RUN, for which a file server is asked: the kernel may remember for long that a name was missing."""
    return run.run_json in run.path.iterdir()


def _joined(run: RunFolder, restart: int) -> NodeFolder:
    """A name that nobody has: a second supervisor of a node, or of another node of that host name, has a number."""
    name, number = _own_name(restart), 1
    while True:
        node = NodeFolder(run.nodes / (name if number == 1 else f"{name}-{number}"))
        with suppress(FileExistsError):
            node.path.mkdir(mode=0o700)
            _describe(node, restart)
            return node
        number += 1


def _own_name(restart: int) -> str:
    """`n1`, and `n1.restart2` of a job that was started again twice: no host name becomes that."""
    name = re.sub(r"[^A-Za-z0-9-]+", "-", platform.node())[:60].strip("-") or "node"
    return f"{name}.restart{restart}" if restart else name


def _describe(node: NodeFolder, restart: int) -> None:
    namespaces = {}
    for kind in ("pid", "mnt", "net", "user"):
        with suppress(OSError):
            namespaces[kind] = Path(f"/proc/self/ns/{kind}").stat().st_ino
    write_json(
        node.about,
        {
            "host": platform.node(),
            "restart": restart,
            "boot_id": boot_id(),
            "namespaces": namespaces,
            "uid": os.getuid(),
            "supervisor_pid": os.getpid(),
            "supervisor_ticks": start_ticks(os.getpid()),
        },
    )
