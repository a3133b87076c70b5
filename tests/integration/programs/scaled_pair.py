"""Two models of one rank, each with an optimizer, under one gradient scaler, as those of a GAN.

In step 3 the loss of the second one overflows on rank 1, and the scaler skips its optimizer. `together`: both losses,
then both optimizers; `in_turn`: one model after the other; `seldom`: both losses, then the second optimizer in every
second step only, and from step 4 on the overflow lasts.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, OVERFLOWS = 12, 3
SELDOM_STEPS, LASTS_FROM = 24, 4
STEP_TAKES_S = 0.3  # the supervisor decides within a second


def main(how: str) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    models = [DistributedDataParallel(torch.nn.Linear(4, 1, bias=False)) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    seldom = how == "seldom"
    for step in range(SELDOM_STEPS if seldom else STEPS):
        due = models[:1] if seldom and step % 2 else models
        for number, model in enumerate(due):
            is_bad = step >= LASTS_FROM if seldom else step == OVERFLOWS
            overflows = is_bad and (number, dist.get_rank()) == (1, 1)
            scaler.scale(model(torch.ones(2, 4)).sum() * (float("inf") if overflows else 1.0)).backward()
            if how == "in_turn":
                scaler.step(optimizers[number])
        for optimizer in optimizers[: len(due)] if how != "in_turn" else ():
            scaler.step(optimizer)
        scaler.update()
        for optimizer in optimizers:
            optimizer.zero_grad()
        time.sleep(STEP_TAKES_S)
    print(f"scale {scaler.get_scale():g}")
    dist.destroy_process_group()


main(sys.argv[1])
