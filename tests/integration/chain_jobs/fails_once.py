"""Rank 1 raises in its third step, unless the file that its argument names is there.

The ranks meet in a file: torchrun's own store lets a second attempt find addresses of the first one now and then. Each
counts its own starts, for torchrun counts them on the node that failed only.
"""

import itertools
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401


def starts_before(folder: Path, rank: int) -> int:
    for number in itertools.count():
        try:
            (folder / f"start.{rank}.{number}").mkdir()
            return number
        except FileExistsError:
            continue
    raise AssertionError("numbers have no end")


def main() -> None:
    failed = Path(sys.argv[1])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meeting = failed.with_name(f"meeting{starts_before(failed.parent, rank)}")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    again = failed.exists()
    for step in range(6):
        optimizer.zero_grad(set_to_none=False)  # gloo's threads must not be the last to hold a tensor
        model(torch.ones(2, 4)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        if step == 2 and rank == 1 and not again:
            failed.touch()
            raise RuntimeError("the first attempt fails")
        optimizer.step()
    dist.destroy_process_group()


main()
