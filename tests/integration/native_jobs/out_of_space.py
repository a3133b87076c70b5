"""A rank whose log cannot grow any more: for lack of disk, or of file descriptors. The training never notices."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

import rank
import torch
import torch.distributed as dist
from rank import ARGUMENTS, FOLDER, native

total = torch.zeros(1)


def reduce_many(count: int, size: int) -> None:
    for _ in range(count):
        x = torch.ones(size)
        dist.all_reduce(x)
        total.add_(x.sum() / size)


def no_descriptors() -> None:
    used = len(list(Path("/proc/self/fd").iterdir())) - 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def full_disk() -> None:
    """The folder lies on a small file system of its own; this takes what is left of it."""
    with (FOLDER / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


rank.record(event_segment_bytes=64 << 10)
if "payloads" in ARGUMENTS:
    native.window(True, 0, 0)
rank.join()
reduce_many(10, 100)
{"descriptors": no_descriptors, "disk": full_disk}[ARGUMENTS[0]]()
reduce_many(1000, 1000)
assert total.item() == 1010
print(native.stats())
assert native.stats()["lost"], "nothing was lost"
native.append(7, b'{"kind": "late", "time_ns": 0}')
native.close_log()
native.reopen_log()
reduce_many(10, 100)
dist.destroy_process_group()
