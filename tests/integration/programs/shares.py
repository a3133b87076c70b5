"""Ranks that spawn and share objects with the process that started them: FILE plain | elastic | asks."""

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 2


def run(rank: int, rendezvous: str) -> float:
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD)
    x = torch.tensor([float(rank + 1)])
    for _ in range(3):
        dist.all_reduce(x)
    return x.item()


def train(rank: int, rendezvous: str, results: Any, go: Any, met: Any, lock: Any, asks: bool) -> None:
    go.wait()
    result = run(rank, rendezvous)
    with lock:
        results.put((rank, result))
    met.wait()
    of_another = results.get()[1] if asks else 1.0
    dist.all_reduce(torch.tensor([of_another]))
    dist.destroy_process_group()


def of_launch(rendezvous: str) -> float:
    found = run(int(os.environ["RANK"]), rendezvous)
    dist.destroy_process_group()
    return found


def launch(rendezvous: str) -> None:
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=WORLD, rdzv_backend="c10d", rdzv_endpoint="127.0.0.1:0",
        run_id="shares", max_restarts=0, monitor_interval=0.1, start_method="spawn",
    )  # fmt: skip
    print(f"result {sorted(elastic_launch(config, of_launch)(rendezvous).items())}", flush=True)


def start(rendezvous: str, asks: bool) -> None:
    spawn = mp.get_context("spawn")
    results, go = spawn.Queue(), spawn.Event()
    given = (rendezvous, results, go, spawn.Barrier(WORLD), spawn.Lock(), asks)
    started = mp.spawn(train, given, nprocs=WORLD, join=False)
    go.set()
    if not asks:
        print(f"result {sorted(results.get() for _ in range(WORLD))}", flush=True)
    while not started.join():
        pass


if __name__ == "__main__":
    file, how = sys.argv[1:]
    if how == "elastic":
        launch(file)
    else:
        start(file, how == "asks")
