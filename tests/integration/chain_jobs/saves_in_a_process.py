"""A training that lets a process of each rank write its training checkpoint (torch's `async_save`), and whose step 4
then produces a NaN on rank 1."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

SAVED_STEP, BAD_STEP, STEPS = 2, 4, 6


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        factor = float("nan") if step == BAD_STEP and dist.get_rank() == 1 else 1.0
        (model(torch.ones(3, 4)).square().mean() * factor).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        if step == SAVED_STEP:
            saved = dcp.async_save(
                model.state_dict(), checkpoint_id=sys.argv[1], async_checkpointer_type=AsyncCheckpointerType.PROCESS
            )
            saved.result()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
