"""Its last rank sleeps before each collective, so that the others wait for it."""

import time

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

STEPS = 25

dist.init_process_group("gloo")
is_last = dist.get_rank() == dist.get_world_size() - 1
parameter = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(STEPS):
    if is_last:
        time.sleep(0.1)
    parameter.grad = torch.ones_like(parameter)
    dist.all_reduce(parameter.grad)
    optimizer.step()
dist.destroy_process_group()
