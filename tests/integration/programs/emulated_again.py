"""A rank that receives in every way: an echo, noise, another rank's object, store, tensor. It prints all values."""

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def main() -> None:
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    told = [{"lr": 0.1, "from": rank}] if rank == 0 else [None]
    dist.broadcast_object_list(told, src=0)
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.set("word", "of rank 0")
    word = store.get("word").decode()
    model = DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=told[0]["lr"])
    counts, drawn = torch.zeros(3, dtype=torch.int64), torch.zeros(3)
    for step in range(STEPS):
        if rank == 0:
            dist.send(torch.tensor([step, 7, 11]), dst=1)
        elif rank == 1:
            dist.recv(counts, src=0)
        dist.broadcast(drawn, src=2)
        loss = model(torch.randn(3, 4) + drawn.sum()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} step {step} {word} {counts.tolist()} {drawn.tolist()} {loss.item()!r}", flush=True)


main()
