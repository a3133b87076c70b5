"""DDP under a gradient scaler, each step of two micro-batches, of which only the second one reduces gradients.

In step 1 the loss of rank 1 overflows: all ranks skip the optimizer. `fused`: an optimizer to which the scaler leaves
the skipping. `wrapped`: the scaler is given an object that steps the optimizer, as wrappers of frameworks do.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, MICRO_BATCHES = 4, 2


class Wrapper:
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups

    def step(self) -> None:
        self.optimizer.step()


def main(how: str) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    linear = torch.nn.Linear(4, 1, bias=False)
    model = DistributedDataParallel(linear)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=how == "fused")
    stepping: Any = Wrapper(optimizer) if how == "wrapped" else optimizer
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    seen = []
    for step in range(STEPS):
        for micro_batch in range(MICRO_BATCHES):
            is_last = micro_batch == MICRO_BATCHES - 1
            with nullcontext() if is_last else model.no_sync():
                loss = model(torch.ones(2, 4)).sum()
                overflows = step == 1 and is_last and dist.get_rank() == 1
                scaler.scale(loss * (float("inf") if overflows else 1.0)).backward()
        scaler.step(stepping)
        scaler.update()
        optimizer.zero_grad()
        seen.append(linear.weight.detach().sum().item())
    print(f"unchanged in {[step for step in range(1, STEPS) if seen[step] == seen[step - 1]]}")
    dist.destroy_process_group()


main(sys.argv[1])
