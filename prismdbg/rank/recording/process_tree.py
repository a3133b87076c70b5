"""The processes above this one, and the ranks among those above and below: next to them, this process may be none.

A process below a rank has its environment, and may communicate, too: torch's writer of training checkpoints
(`async_save` with a process), an evaluation. A launcher may have a RANK that was meant for something else, as in pods
of Kubeflow's PyTorchJob.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from prismdbg.rank.recording.own_process import own_start_ticks
from prismdbg.settings.process_stat import fields_of, start_ticks
from prismdbg.settings.rank_config import RankConfig

_PARENT = 1  # of the fields of a process
_RESTARTS = "TORCHELASTIC_RESTART_COUNT"
_MOST = 64  # processes above

Process = list[int]  # PID and start in clock ticks since boot


def ancestors() -> list[Process]:
    """The parent first, in this PID namespace."""
    found: list[Process] = []
    pid = os.getpid()
    with contextlib.suppress(OSError):
        while len(found) < _MOST and (pid := int(fields_of(pid)[_PARENT])):
            found.append([pid, start_ticks(pid)])
    return found


def launch(above: list[Process]) -> dict[str, Process]:
    """`agent`, torchrun's process that starts this one and restarts it, and `worker`, what it started: this process, or
    one above that runs it. Empty where torchrun did not start it. above: as `ancestors` says."""
    if _RESTARTS in os.environ:
        for worker, agent in pairwise([_this(), *above]):
            if not _is_of_torchrun(agent):
                return {"agent": agent, "worker": worker}
    return {}


def rank_above(config: RankConfig, world_size: int) -> int | None:
    """The recorded rank that has started this process, itself or through others. None also where this one's job is the
    larger one: a program may train alone before it starts a job."""
    above = ancestors()
    for rank in _recorded_here(config):
        if [rank.get("pid"), rank.get("started_ticks")] in above and rank.get("world_size", 0) >= world_size:
            return int(rank["rank"])
    return None


def has_ranks_below(config: RankConfig) -> bool:
    return any(_this() in rank.get("ancestors", ()) for rank in _recorded_here(config))


def _this() -> Process:
    return [os.getpid(), own_start_ticks()]


def _is_of_torchrun(process: Process) -> bool:
    """Whether torchrun has set variables for it. Not known of another user's."""
    try:
        given = Path(f"/proc/{process[0]}/environ").read_bytes()
    except OSError:
        return False
    return any(variable.startswith(f"{_RESTARTS}=".encode()) for variable in given.split(b"\0"))


def _recorded_here(config: RankConfig) -> Iterator[Mapping[str, Any]]:
    """`rank.json` of the ranks of this node, also of those that have ended."""
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    for socket in Path(config.socket_dir).glob("*.sock"):
        with contextlib.suppress(OSError, ValueError):
            rank = json.loads((Path(config.home) / "ranks" / socket.stem / "rank.json").read_text())
            if rank.get("pid_namespace") == namespace:
                yield rank
