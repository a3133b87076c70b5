"""A job of four ranks on two CPUs: `--late` says why its last rank is late, from the step `--begin` on.

Ranks 0 to 2 share CPU 0, and rank 3 has CPU 1. In each step a rank sleeps, as while a GPU works, then computes, then
sleeps again; ranks that share a CPU compute one after the other, so that all need the same time. Work is CPU time of
the thread, so that it is the same on a machine that does other things, too; and `--priority` keeps those away.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

LAST = 3
WORK_S = 0.04
PAUSES_S = 2.4 * WORK_S  # of each step
BURNER = Path(__file__).with_name("burner.py")


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def slow_code(seconds: float) -> None:
    compute(seconds)
    compute(seconds)


def script(folder: Path, rank: int, reading: str, value: str) -> None:
    """For the fake driver: what it says of the rank's device from now on."""
    part = folder / str(rank) / f".{reading}"
    part.write_text(f"{value}\n")
    part.rename(folder / str(rank) / reading)


def prefer(priority: int) -> None:
    """Where sessions share the machine among them (sched_autogroup), a process's own priority counts only in its
    session."""
    os.setpriority(os.PRIO_PROCESS, 0, priority)
    group = Path("/proc/self/autogroup")
    if group.exists():
        group.write_text(str(priority))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--late", choices=["code", "group", "burner", "hot", "pause", "no"], default="no")
    parser.add_argument("--group", type=Path)
    parser.add_argument("--devices", type=Path, help="the script of a fake driver")
    parser.add_argument("--seconds", type=Path, help="write how long the steps took")
    parser.add_argument("--onset", type=Path, help="write when the last rank began to be late, in ns of the wall clock")
    parser.add_argument("--priority", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if args.devices is not None:
        script(args.devices, rank, "processes", str(os.getpid()))
    os.sched_setaffinity(0, {int(rank == LAST)})
    if args.priority:
        prefer(args.priority)
    dist.barrier()
    burners: list[subprocess.Popen[bytes]] = []
    begun = time.monotonic()
    try:
        train(args, rank, burners)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    if args.seconds is not None and rank == 0:
        args.seconds.write_text(f"{time.monotonic() - begun}\n")
    dist.destroy_process_group()


def train(args: argparse.Namespace, rank: int, burners: list[subprocess.Popen[bytes]]) -> None:
    parameter = torch.nn.Parameter(torch.ones(1024))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    before_s = PAUSES_S * (rank % LAST) / (LAST - 1)
    for step in range(args.steps):
        late = args.late if rank == LAST and step >= args.begin else "no"
        if step == args.begin:
            if rank == LAST and args.onset is not None:
                args.onset.write_text(f"{time.time_ns()}\n")
            if late == "burner":
                burners += [subprocess.Popen([sys.executable, BURNER, str(int(rank == LAST))]) for _ in range(2)]
            elif late == "hot":  # as such a GPU would be read: it computes longer at a lower clock
                script(args.devices, rank, "throttle_reasons", "0 64")
                script(args.devices, rank, "sm_clock", "0 600")
                script(args.devices, rank, "utilization", "0 98")
            elif late == "group":
                (args.group / "cgroup.procs").write_text(str(os.getpid()))
        time.sleep(before_s)
        compute(WORK_S)
        time.sleep(PAUSES_S - before_s)
        if late == "code":
            slow_code(WORK_S)
        elif late in ("pause", "hot"):  # asleep, or waiting for a GPU
            time.sleep(2 * WORK_S)
        parameter.grad = torch.ones_like(parameter)
        dist.all_reduce(parameter.grad)
        optimizer.step()


if __name__ == "__main__":
    main()
