"""Groups that end with the module that used them last, right after its collectives are complete."""

import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for _ in range(int(sys.argv[1])):
    group = dist.new_group([0])
    module = DistributedDataParallel(torch.nn.Linear(2, 2), process_group=group)
    module(torch.ones(1, 2)).sum().backward()
    dist.destroy_process_group(group)
    del group, module
print("result", flush=True)
dist.destroy_process_group()
