"""Ranks made by torch.multiprocessing.spawn: FILE [fail]."""

import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank: int, world: int, rendezvous: str, fails: bool) -> None:
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    x = torch.tensor([float(rank + 1)])
    for _ in range(3):
        dist.all_reduce(x)
    if fails and rank == 1:
        raise ValueError("a shard is missing")
    print(f"\nresult {rank} {x.item()}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, (2, sys.argv[1], sys.argv[2:] == ["fail"]), nprocs=2)
