"""All its collectives are called by a package, `kit`, that its caller provides. Rank 1 sends a NaN in step 2."""

from __future__ import annotations

import kit
import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for step in range(4):
        weight.grad = torch.full((4,), float("nan") if step == 2 and dist.get_rank() == 1 else 1.0)
        kit.mean(weight.grad)
        optimizer.step()
    dist.destroy_process_group()


main()
