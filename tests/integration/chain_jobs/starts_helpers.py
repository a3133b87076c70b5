"""Each rank starts programs of its own, which import torch, perhaps train or evaluate something in a group of their
own, and fail. Rank 1 then raises, when rank 0 has ended: a launcher would end it.

Arguments: a folder for files by which processes find each other; `fails`, `trains` or `evaluates`, which are two; and
when: `before` the group communicates, `within` it, `after` it was destroyed, or `again`, in a group that is made after
another was destroyed. `detached`: within it, by a shell that has ended when they begin to work.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

FAILS = "import torch; raise ValueError('the helper fails')"
TRAINS = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
weight = torch.ones(1, requires_grad=True)
weight.sum().backward()
dist.all_reduce(weight.grad)
torch.optim.SGD([weight], lr=0.1).step()
"""
EVALUATES = """
import sys
import torch
import torch.distributed as dist
store = dist.FileStore(sys.argv[1], 2)
dist.init_process_group("gloo", store=store, rank=int(sys.argv[2]), world_size=2)
dist.all_reduce(torch.ones(1))
store.set(sys.argv[2], "has communicated")
store.wait(["0", "1"])
"""
IN_BACKGROUND = ("sh", "-c", '"$@" &', "sh")
HELPERS = {"fails": [FAILS], "trains": [TRAINS + FAILS], "evaluates": [EVALUATES + FAILS] * 2}


def run_helpers(helper: str, folder: Path, rank: int, through: Sequence[str] = ()) -> None:
    """Returns when they have ended: nobody has their output open any more."""
    helpers = [
        subprocess.Popen(
            [*through, sys.executable, "-c", code, str(folder / f"below {rank}"), str(number)], stdout=subprocess.PIPE
        )
        for number, code in enumerate(HELPERS[helper])
    ]
    for one in helpers:
        one.communicate()
        assert one.returncode == (0 if through else 1)


def await_end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])


def main(folder: Path, helper: str, when: str) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if when == "again":
        dist.init_process_group("gloo", init_method=f"file://{folder}/first", rank=rank, world_size=size)
        dist.all_reduce(torch.ones(1))
        dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{folder}/job", rank=rank, world_size=size)
    pid_of_rank_0 = folder / "rank 0"
    if rank == 0:
        pid_of_rank_0.write_text(str(os.getpid()))
    if when == "before":
        run_helpers(helper, folder, rank)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(3, 4)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    if when == "after":
        dist.destroy_process_group()
    if when != "before":
        run_helpers(helper, folder, rank, IN_BACKGROUND if when == "detached" else ())
    if rank == 1:
        await_end(int(pid_of_rank_0.read_text()))
        raise RuntimeError("the training fails")
    if when != "after":
        dist.destroy_process_group()


main(Path(sys.argv[1]), *sys.argv[2:])
