"""A rank whose DataLoader workers are started as the argument says: fork, spawn or forkserver."""

import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        weight = torch.zeros(1, requires_grad=True)
        weight.sum().backward()
        torch.optim.SGD([weight], lr=1.0).step()  # a worker's optimizer is no step of the rank
        return torch.tensor([float(index * index)])


if __name__ == "__main__":
    dist.init_process_group("gloo")
    total = torch.zeros(1)
    for batch in DataLoader(Squares(), 2, num_workers=1, multiprocessing_context=sys.argv[1]):
        part = batch.sum(0)
        dist.all_reduce(part)
        total += part
    print(f"\nresult {dist.get_rank()} {total.item()}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()
