"""A loss that becomes NaN on rank 1, a barrier, and only then a collective that sends it."""

from __future__ import annotations

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

BAD_STEP = 4


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(7):
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).square().mean()
        factor = float("nan") if step == BAD_STEP and dist.get_rank() == 1 else 1.0
        loss = loss * factor  # born here
        dist.barrier()
        loss.backward()
        dist.barrier()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
