"""Two ranks that tell each other something with a store of torch.distributed: `count` with a number that all add to in
a store of their own, `key` with a key of the default store, `wait` with one that is waited for first, `own` with keys
that each rank sets for itself. With `state` they have a store of their own before their restore point.

torchrun --nproc-per-node 2 asks_a_store.py HOW
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store


def train(value: torch.Tensor) -> None:
    from prismdbg_hooks import restore_point

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(restore_point(model=model, optimizer=optimizer) or 0, 9):
        model(value).sum().backward()
        dist.all_reduce(model.weight.grad)
        optimizer.step()
        optimizer.zero_grad()


def main(how: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = _get_default_store()
    value = torch.tensor([float(rank)])
    dist.all_reduce(value)
    dist.all_reduce(value)
    if how == "count":
        port = int(os.environ["MASTER_PORT"]) + 1
        store = dist.TCPStore("localhost", port, 2, is_master=rank == 0)
        store.add("steps", rank + 1)
        dist.barrier()
        value += store.add("steps", 0)
    elif how == "wait":
        store.set(f"rate {rank}", str(rank))
        store.wait([f"rate {1 - rank}"])
        value += float(store.get(f"rate {1 - rank}"))
    elif how == "state":
        port = int(os.environ["MASTER_PORT"]) + 1
        store = dist.TCPStore("localhost", port, 2, is_master=rank == 0)
        store.set(f"mine {rank}", str(rank))
        train(value)
    elif how == "key":
        store.set(f"loss {rank}", str(rank))
        value += float(store.get(f"loss {1 - rank}"))
    else:
        store.set(f"mine {rank}", str(rank))
        value += float(store.get(f"mine {rank}"))
    dist.all_reduce(value)
    print(f"\nresult {rank} {value.item()}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
