"""A training of which all gradients are zero, and whose rank 1 comes last to every reduction."""

import time

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

dist.init_process_group("gloo")
model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(12):
    optimizer.zero_grad()
    (model(torch.ones(4, 32)) * 0.0).sum().backward()
    if dist.get_rank() == 1:
        time.sleep(0.05)
    dist.all_reduce(model.weight.grad)
    optimizer.step()
dist.destroy_process_group()
