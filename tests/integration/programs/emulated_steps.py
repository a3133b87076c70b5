"""STEPS optimizer steps of a model of one weight, then it ends, with the code given."""

import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

dist.init_process_group("gloo")
weight = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(int(sys.argv[1])):
    weight.grad = torch.ones(4)
    dist.all_reduce(weight.grad)
    optimizer.step()
print(f"last line of rank {dist.get_rank()}: {weight[0].item():.1f}", flush=True)
sys.exit(int(sys.argv[2]))
