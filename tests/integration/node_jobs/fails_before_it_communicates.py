"""At its first start rank 1 ends before it communicates, when the others wait for it; at the second one, the gradients
of rank 3 are NaN in the third step. torchrun counts that restart on the node of rank 1 only.

The ranks meet in a file, as those of `fails_once.py`.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

BOUND_S = 120.0


def start(folder: Path, rank: int) -> int:
    """How often this rank was started before."""
    number = next(number for number in range(10) if not (folder / f"start.{rank}.{number}").exists())
    (folder / f"start.{rank}.{number}").mkdir()
    return number


def wait_for_all(folder: Path, world: int) -> None:
    until_s = time.monotonic() + BOUND_S
    while not all((folder / f"start.{rank}.0").exists() for rank in range(world)) and time.monotonic() < until_s:
        time.sleep(0.05)


def main() -> None:
    folder = Path(sys.argv[1])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    number = start(folder, rank)
    if number == 0 and rank == 1:
        wait_for_all(folder, world)
        os._exit(3)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting{number}", rank=rank, world_size=world)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        optimizer.zero_grad(set_to_none=False)  # gloo's threads must not be the last to hold a tensor
        factor = float("nan") if step == 2 and rank == 3 else 1.0
        (model(torch.ones(2, 4)).sum() * factor).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.destroy_process_group()


main()
