"""Trains some linears on a world of dp under DDP or FSDP2: sampled.py ddp|fsdp2."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(2)])
if sys.argv[1] == "ddp":
    model = DistributedDataParallel(model)
else:
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for _ in range(4):
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
