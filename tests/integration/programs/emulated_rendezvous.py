"""Every way in which a process group comes to be, one after another: emulated_rendezvous.py FILE."""

import os
import sys

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def sums() -> bool:
    x = torch.ones(2)
    dist.all_reduce(x)
    dist.barrier()
    same = dist.get_rank() == rank and dist.get_world_size() == world and x.tolist() == [float(world)] * 2
    dist.destroy_process_group()
    return same


found = {}
dist.init_process_group("gloo")
found["environment"] = sums()
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29501", rank=rank, world_size=world)
found["tcp"] = sums()
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=world)
found["file"] = sums()
store = dist.TCPStore("127.0.0.1", 29502, world, rank == 0)
dist.init_process_group("gloo", store=dist.PrefixStore("mine", store), rank=rank, world_size=world)
found["store"] = sums()
dist.init_process_group("cpu:gloo")
found["by device"] = sums()
print(found, flush=True)
