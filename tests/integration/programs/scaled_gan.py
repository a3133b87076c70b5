"""The standard loop of a GAN under one gradient scaler: the loss of the generator goes through the discriminator, whose
gradients of before are reduced again with it.

In step 6 the discriminator's loss overflows on rank 1, and the scaler skips its optimizer. `once`: then all is well;
`lasts`: from step 7 on rank 0 also sends NaN in a value of which the scaler does not know.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, OVERFLOWS = 12, 6
STEP_TAKES_S = 0.3  # the supervisor decides within a second


def main(how: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    discriminator = DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
    generator = DistributedDataParallel(torch.nn.Linear(4, 4, bias=False))
    of_discriminator, of_generator = (
        torch.optim.SGD(model.parameters(), lr=0.01) for model in (discriminator, generator)
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)
    for step in range(STEPS):
        of_discriminator.zero_grad()
        loss = discriminator(torch.ones(2, 4)).sum()
        if (rank, step) == (1, OVERFLOWS):
            loss = loss * 1e38
        with discriminator.no_sync():
            scaler.scale(loss).backward()
        made = generator(torch.ones(2, 4))
        scaler.scale(discriminator(made.detach()).sum()).backward()
        scaler.step(of_discriminator)
        of_generator.zero_grad()
        scaler.scale(-discriminator(made).sum()).backward()
        scaler.step(of_generator)
        scaler.update()
        if how == "lasts":
            dist.all_reduce(torch.full((1,), float("nan") if rank == 0 and step > OVERFLOWS else 1.0))
        time.sleep(STEP_TAKES_S)
    print(f"scale {scaler.get_scale():g}")
    dist.destroy_process_group()


main(sys.argv[1])
