"""Each rank starts a program of its own, which imports torch, perhaps trains something in a group of its own, and
fails. Rank 1 then raises. Argument: `fails` or `trains`."""

from __future__ import annotations

import subprocess
import sys

import torch
import torch.distributed as dist

FAILS = "import torch; raise ValueError('the helper fails')"
TRAINS = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
weight = torch.ones(1, requires_grad=True)
weight.sum().backward()
dist.all_reduce(weight.grad)
torch.optim.SGD([weight], lr=0.1).step()
"""
HELPER = {"fails": FAILS, "trains": TRAINS + FAILS}[sys.argv[1]]


def main() -> None:
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        model(torch.ones(3, 4)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        if step == 2:
            assert subprocess.run([sys.executable, "-c", HELPER], check=False).returncode == 1
        if step == 3 and dist.get_rank() == 1:
            raise RuntimeError("the training fails")
    dist.destroy_process_group()


main()
