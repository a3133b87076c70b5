"""Ranks that multiprocessing forks, beside a process that is none: FILE direct | nested | torch [fail]. What they draw
without a seed, before the fork and after it, goes through a collective. Torch is imported before it with `torch`."""

import multiprocessing
import multiprocessing.connection
import os
import random
import sys
import tempfile
from typing import Any

FORK: Any = multiprocessing.get_context("fork")


def train(rank: int, rendezvous: str, drawn: float, fails: bool, go: Any = None) -> None:
    import torch
    import torch.distributed as dist

    if go is not None:
        go.wait()
    os.environ["RANK"] = str(rank)  # where it is set, the program forks no ranks
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    name = sum(tempfile.mktemp().encode())
    x = torch.tensor([drawn, random.random(), random.Random().random(), float(name)], dtype=torch.float64)
    for _ in range(2):
        dist.all_reduce(x)
    if fails and rank == 1:
        raise ValueError("a shard is missing")
    parent = multiprocessing.parent_process()
    print(f"\nresult {rank} {x.tolist()} {parent is not None and parent.is_alive()}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def counts(told: multiprocessing.connection.Connection) -> None:
    told.send(random.Random().random())


def told_by_another() -> float:
    """A process that is no rank is started in a replay, too."""
    mine, theirs = multiprocessing.Pipe()
    process = FORK.Process(target=counts, args=(theirs,))
    process.start()
    found: float = mine.recv()
    process.join()
    return found


def run(rendezvous: str, fails: bool) -> None:
    drawn = random.random() + told_by_another()
    go = FORK.Event()
    ranks = [FORK.Process(target=train, args=(rank, rendezvous, drawn, fails, go), daemon=True) for rank in range(2)]
    for rank in ranks:
        rank.start()
    go.set()
    for rank in ranks:
        rank.join()
    sys.exit(max(rank.exitcode for rank in ranks))


if __name__ == "__main__":
    file, how, fails = sys.argv[1], sys.argv[2], sys.argv[3:] == ["fail"]
    assert how == "torch" or "RANK" not in os.environ  # an emulated program has it
    if how == "nested":
        process = FORK.Process(target=run, args=(file, fails))
        process.start()
        process.join()
        sys.exit(process.exitcode)
    if how == "torch":
        import torch.multiprocessing

        torch.multiprocessing.start_processes(train, (file, random.random(), fails), nprocs=2, start_method="fork")
    else:
        run(file, fails)
