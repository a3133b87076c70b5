"""Its parameters end with other bits in each run, which no collective shows: they change after the last one."""

import os

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

dist.init_process_group("gloo")
parameter = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(3):
    parameter.grad = torch.ones(4)
    dist.all_reduce(parameter.grad)
    optimizer.step()
with torch.no_grad():
    parameter += int.from_bytes(os.urandom(3), "little")
dist.destroy_process_group()
