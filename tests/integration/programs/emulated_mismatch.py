"""Steps that would hang in a real job, or not, by the first argument."""

import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

HOW = sys.argv[1]
dist.init_process_group("gloo")
RANK = dist.get_rank()
groups = [dist.new_group([0, 1]) for _ in range(2)]
weight = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(3):
    weight.grad = torch.ones(4)
    dist.all_reduce(weight.grad)
    if HOW == "missing" and RANK == 0 and step == 1:
        dist.barrier()
    for group in reversed(groups) if HOW == "circle" and RANK == 1 else groups:
        dist.all_reduce(torch.ones(2), group=group)
    optimizer.step()
    loss = weight.sum().item()
    if HOW == "stops early" and loss < -1:
        break
    print(f"rank {RANK} step {step} loss {loss:.2f}", flush=True)
if HOW == "tail" and RANK == 0:
    dist.all_reduce(torch.ones(1))
