"""STEPS steps; in every third one the loss is summed up, too."""

import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

dist.init_process_group("gloo")
weight = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(int(sys.argv[1])):
    weight.grad = torch.ones(4)
    dist.all_reduce(weight.grad)
    optimizer.step()
    if step % 3 == 2:
        dist.all_reduce(torch.ones(1))
