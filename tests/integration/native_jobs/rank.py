"""What the scripts of this folder share: one rank of a gloo job that records itself with the native kernels.

A script is started with FOLDER RANK WORLD [ARGUMENT...]; its log and its report go to FOLDER/RANK.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from prismdbg.capsule.log.format import Kind
from prismdbg.jobs.injection import cache_dir
from prismdbg.rank.c10d import schemas
from prismdbg.rank.native import build as native_build

sys.path.insert(0, str(Path(__file__).parents[2]))
from waiting import wait_for

__all__ = ["ARGUMENTS", "FOLDER", "RANK", "RUN", "WORLD", "join", "native", "record", "report", "wait_for"]

RUN = Path(sys.argv[1])
RANK, WORLD = int(sys.argv[2]), int(sys.argv[3])
ARGUMENTS = sys.argv[4:]
FOLDER = RUN / str(RANK)

native: Any = native_build.load(cache_dir())


def describe(group: Any) -> None:
    ranks = dist.get_process_group_ranks(group)
    body = {"name": group.group_name, "ranks": ranks, "desc": group.group_desc, "backend": "gloo"}
    native.append(Kind.GROUP, json.dumps(body).encode())


def record(*, event_segment_bytes: int = 1 << 20, payload_segment_bytes: int = 1 << 20, direct: bool = True) -> None:
    """Installs the kernels and opens the log. `direct`: on a file system that always answers."""
    torch.set_num_threads(1)
    native.install(schemas.read().positions())
    native.on_group(describe)
    native.open(str(FOLDER), RANK, event_segment_bytes, payload_segment_bytes, True, True, True, False, direct)
    native.mode(1)


def join() -> None:
    """Joins the other ranks of the job."""
    dist.init_process_group("gloo", init_method=f"file://{RUN / 'store'}", rank=RANK, world_size=WORLD)


def log_files_in_use() -> list[str]:
    """Files of this rank's log that this process has mapped or open."""
    used = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if str(FOLDER) in line]
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = str(entry.readlink())
            if str(FOLDER) in target:
                used.append(target)
    return used


def assert_log_is_closed() -> None:
    assert log_files_in_use() == []


def report(value: Any) -> None:
    (FOLDER / "report.json").write_text(json.dumps(value))
