"""The processes above this one, and the ranks among those above and below: next to them, this process may be none.

A process below a rank has its environment, and may communicate, too: torch's writer of training checkpoints
(`async_save` with a process), an evaluation. A launcher may have a RANK that was meant for something else, as in pods
of Kubeflow's PyTorchJob.

Each rank leaves a mark where the agents listen, also one that is not recorded: that is on a file system of this
machine, while a file server that has RUN may not answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from prismdbg.rank.recording.own_process import own_start_ticks
from prismdbg.settings.process_stat import fields_of, start_ticks
from prismdbg.settings.rank_config import RankConfig

_PARENT = 1  # of the fields of a process
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"
_MOST = 64  # processes above
_MARK = ".rank"  # the end of its name, behind PID and PID namespace
VARIABLE = "PRISMDBG_PROCESSES_ABOVE"

Process = list[int]  # PID and start in clock ticks since boot


def ancestors() -> list[Process]:
    """The parent first, in this PID namespace."""
    found: list[Process] = []
    pid = os.getpid()
    with contextlib.suppress(OSError):
        while len(found) < _MOST and (pid := int(fields_of(pid)[_PARENT])):
            found.append([pid, start_ticks(pid)])
    return found


def tell_those_below() -> None:
    """That this process is above them: of a program in the background, the shell that started it has ended. Told before
    it is known who becomes a rank, for a variable is safely set only while there are no other threads."""
    above = os.environ.get(VARIABLE, "").split()
    os.environ[VARIABLE] = " ".join([*dict.fromkeys([*above, _name(_this())])][-_MOST:])


def launch(above: list[Process]) -> dict[str, Process]:
    """`agent`, torchrun's process that starts this one and restarts it, and `worker`, what it started: this process, or
    one above that runs it. Empty where torchrun did not start it. above: as `ancestors` says."""
    if _RESTARTS in os.environ:
        for worker, agent in pairwise([_this(), *above]):
            if not _is_of_torchrun(agent):
                return {"agent": agent, "worker": worker}
    return {}


def mark(config: RankConfig, rank: int, world_size: int) -> None:
    """Tells the processes above and below that this one is a rank."""
    job = {"world_size": world_size, "place": _meeting_place(), "given_place": _given_place()}
    _write(config, {"rank": rank, **job, "process": _this(), "ancestors": ancestors()})


def mark_without_group(config: RankConfig) -> None:
    """This process has destroyed its process groups: what it starts from now on has a job of its own."""
    with contextlib.suppress(OSError, ValueError):
        _write(config, {**json.loads(_own_mark(config).read_text()), "left_ticks": _now_ticks()})


def mark_with_group(config: RankConfig, rank: int, world_size: int) -> None:
    """This process has made a default process group, and may start others before it communicates."""
    if _own_mark(config).exists() or rank_above(config, rank, world_size) is None:
        mark(config, rank, world_size)


def rank_above(config: RankConfig, rank: int, world_size: int) -> int | None:
    """The rank that has started this process, itself or through others, as no rank."""
    above, told = ancestors(), os.environ.get(VARIABLE, "").split()
    for one in _marks(config):
        process = one["process"]
        is_above = process in above or (process != _this() and _name(process) in told and not _is_relaunch_of(one))
        if is_above and not _starts_ranks(one, rank, world_size):
            return int(one["rank"])
    return None


def _is_relaunch_of(one: Mapping[str, Any]) -> bool:
    """Whether that rank started the job again, in the background, and has ended: this process meets others where it
    did."""
    place, process = _meeting_place(), one["process"]
    return bool(place and place == (one["place"] or one["given_place"])) and start_ticks(process[0]) != process[1]


def _starts_ranks(one: Mapping[str, Any], rank: int, world_size: int) -> bool:
    """Whether this process, below that rank, is a rank, too: of a larger job, for a program may train alone before it
    starts one; or, with a process group as large, of the same job, or of one that comes after it, as a training after a
    test of the network."""
    its_size: int = one["world_size"]
    if world_size != its_size or not dist.is_initialized():
        return world_size > its_size
    left_ticks: int = one.get("left_ticks", sys.maxsize)
    return own_start_ticks() >= left_ticks or _is_of_its_job(one, rank)


def _is_of_its_job(one: Mapping[str, Any], rank: int) -> bool:
    """Or of the one that it starts: where it has no group, the place that its variables name is for those below. That
    of a single rank is for itself."""
    place = _meeting_place()
    if one["place"] or one["world_size"] == 1:
        return bool(place and place == (one["place"] or one["given_place"]) and rank != one["rank"])
    return bool(place and place == one["given_place"])


def has_ranks_below(config: RankConfig) -> bool:
    return any(_this() in one["ancestors"] for one in _marks(config))


def _write(config: RankConfig, about: Mapping[str, Any]) -> None:
    with contextlib.suppress(OSError):
        path = _own_mark(config)
        path.with_suffix(".tmp").write_text(json.dumps(about))
        path.with_suffix(".tmp").replace(path)


def _own_mark(config: RankConfig) -> Path:
    return Path(config.socket_dir) / f"{os.getpid()}-{_namespace()}{_MARK}"


def _now_ticks() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") // 1_000_000_000


def _given_place() -> str:
    """Empty where no variable says it."""
    host, port = (os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    return f"{host}:{port}" if port else ""


def _meeting_place() -> str:
    """Of the default process group: address or path of its store. Empty where there is none, or no other process could
    come there."""
    store = c10d._get_default_store() if dist.is_initialized() else None
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    if isinstance(store, dist.TCPStore):
        return f"{store.host}:{store.port}"
    return str(store.path) if isinstance(store, dist.FileStore) else ""


def _this() -> Process:
    return [os.getpid(), own_start_ticks()]


def _name(process: Process) -> str:
    """Of a process of this PID namespace, among all of the machine."""
    return f"{process[0]}-{process[1]}-{_namespace()}"


def _is_of_torchrun(process: Process) -> bool:
    """Whether torchrun has set variables for it. Not known of another user's."""
    try:
        given = Path(f"/proc/{process[0]}/environ").read_bytes()
    except OSError:
        return False
    return any(variable.startswith(f"{_RESTARTS}=".encode()) for variable in given.split(b"\0"))


def _marks(config: RankConfig) -> Iterator[Mapping[str, Any]]:
    """Of the ranks of this PID namespace, also of those that have ended."""
    for path in Path(config.socket_dir).glob(f"*-{_namespace()}{_MARK}"):
        with contextlib.suppress(OSError, ValueError):
            yield json.loads(path.read_text())


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
