"""A job of four ranks on two CPUs: `--late` says why its last rank is late, from the step `--from` on.

Ranks 0 to 2 share CPU 0, and rank 3 has CPU 1 and three times their work, so that all of them come together. Work is CPU
time of the thread, so that it is the same on a machine that does other things, too.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

LAST = 3
WORK_S = 0.03


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def slow_code(seconds: float) -> None:
    compute(2 * seconds)


def enter(group: Path) -> None:
    (group / "cgroup.procs").write_text(str(os.getpid()))


def say_device(folder: Path, rank: int) -> None:
    """For the fake driver: which process computes on which of its devices."""
    part = folder / f".{rank}"
    part.write_text(str(os.getpid()))
    part.rename(folder / str(rank))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--late", choices=["code", "group", "device", "sleep", "no"], default="no")
    parser.add_argument("--group", type=Path)
    parser.add_argument("--pids", type=Path)
    parser.add_argument("--times", type=Path)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    os.sched_setaffinity(0, {int(rank == LAST)})
    parameter = torch.nn.Parameter(torch.ones(1024))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    if args.pids is not None:
        say_device(args.pids, rank)
    dist.barrier()
    work_s = WORK_S if rank == LAST else WORK_S / LAST
    begun = time.monotonic()
    for step in range(args.steps):
        late = rank == LAST and step >= args.begin
        if late and step == args.begin and args.late == "group":
            enter(args.group)
        compute(work_s)
        if late and args.late == "code":
            slow_code(work_s)
        if late and args.late in ("device", "sleep"):
            time.sleep(2 * work_s)
        parameter.grad = torch.ones_like(parameter)
        dist.all_reduce(parameter.grad)
        optimizer.step()
    if args.times is not None and rank == 0:
        args.times.write_text(f"{time.monotonic() - begun}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
