"""Steps marked by hand; prismdbg is importable in a recorded job, whatever its environment holds."""

import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

import prismdbg

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
x = torch.ones(1)  # kept to the end: gloo's threads must not be the last to hold a tensor while Python ends
optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
for number in (100, 200):
    prismdbg.step(number)
    for _ in range(2):
        dist.all_reduce(x)
    optimizer.step()
dist.destroy_process_group()
