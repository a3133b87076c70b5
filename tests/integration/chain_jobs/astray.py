"""Ranks that train together until one goes astray, as the first argument says.

sleep: rank 1 sleeps in its own code. gil: it stands in native code that keeps Python's lock. skip: it leaves out one
collective of several that are alike. well: it does not.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

STEPS = 12
ASTRAY = 1
LONG_S = 3600


def load_batch(how: str, step: int) -> torch.Tensor:
    if dist.get_rank() == ASTRAY and step == 5:
        if how == "sleep":
            time.sleep(LONG_S)
        if how == "gil":
            ctypes.PyDLL(None).sleep(LONG_S)
    return torch.full((4,), float(step + dist.get_rank()))


def average(how: str, step: int, model: torch.nn.Linear) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
    dist.all_reduce(torch.stack([p.grad.sum() for p in model.parameters() if p.grad is not None]))  # gradients
    if how == "skip" and dist.get_rank() == ASTRAY and step == 4:
        return
    dist.all_reduce(torch.ones(2))  # norms


def main() -> None:
    how = sys.argv[1]
    dist.init_process_group("gloo")
    torch.manual_seed(int(os.environ["RANK"]))
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(load_batch(how, step)).sum().backward()
        average(how, step, model)
        optimizer.step()
        print(f"rank {dist.get_rank()} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
