"""Sends a sum over many numbers, which depends on how many threads share it."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
torch.manual_seed(0)
numbers = torch.randn(1 << 20)
total = numbers.sum()
dist.all_reduce(total)
print(f"result {total.item():.9g} on {torch.get_num_threads()}", flush=True)
dist.barrier()
dist.destroy_process_group()
