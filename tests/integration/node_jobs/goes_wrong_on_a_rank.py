"""A small training in whose step 5 one rank goes wrong: `goes_wrong_on_a_rank.py nan|hang|raise RANK`."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).resolve().parents[1] / "programs"))
import uncompiled  # noqa: F401

STEPS, AT = 8, 5
HOW, WHICH = sys.argv[1], int(sys.argv[2])


def batch(rank: int, step: int) -> torch.Tensor:
    data = torch.randn(8, 16)
    if step == AT and rank == WHICH:
        if HOW == "hang":
            time.sleep(3600)
        if HOW == "raise":
            raise ValueError("no such record")
        data[0, 0] = float("nan")
    return data


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = model(batch(dist.get_rank(), step)).square().mean()
        dist.all_reduce(loss.detach())
        loss.backward()
        optimizer.step()
    dist.barrier()
    del model  # a group of gloo's (torch 2.13) that it would free later, with Python's lock, may wait for ever
    dist.destroy_process_group()


main()
