"""Trains several configurations of `examples/sweep/train.py` in turn, in one job, and says how long each step took.

swept_steps.py ROUNDS SECONDS FILE CONFIGURATION...; one is pp=1,tp=2,mbs=4,rc=full. Each round is one step of
each, in an order of its own, until the rounds or the seconds are over. FILE gets the seconds of each step by
configuration, of the rank that needed longest.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

sys.path.append(str(Path(__file__).resolve().parents[3] / "examples" / "sweep"))
from train import Excerpts, GPTConfig, Stage, loss_of, shard  # type: ignore[import-not-found]

BATCH, LAYERS, WIDTH, WARM_UP_ROUNDS = 16, 4, 256, 2


def made(name: str) -> Callable[[], None]:
    """One step of this configuration, as the example's `main` does it."""
    values = dict(part.split("=") for part in name.split(","))
    pp, tp, microbatch = int(values["pp"]), int(values["tp"]), int(values["mbs"])
    replicas = dist.get_world_size() // (pp * tp)
    mesh = init_device_mesh("cpu", (pp, replicas, tp), mesh_dim_names=("pp", "dp", "tp"))
    number, replica = mesh["pp"].get_local_rank(), mesh["dp"].get_local_rank()
    config = GPTConfig(width=WIDTH, layers=LAYERS, heads=8, dropout=0.0)
    torch.manual_seed(number)
    module = Stage(config, number, pp, values["rc"] == "full")
    shard(module, mesh)
    stage = PipelineStage(module, number, pp, torch.device("cpu"), group=mesh["pp"].get_group())
    own = BATCH // replicas
    schedule = Schedule1F1B(stage, own // microbatch, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, foreach=False)
    batches = Excerpts(config.context, own, 1 + replica)

    def step() -> None:
        inputs, targets = batches.next()
        ends = {"target": targets, "losses": []} if stage.is_last else {}
        schedule.step(*([inputs] if stage.is_first else []), **ends)
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    rounds, most_s, out, names = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    steps = {name: made(name) for name in names}
    taken: dict[str, list[float]] = {name: [] for name in names}
    began, draw = time.monotonic(), random.Random(0)
    for number in range(rounds + WARM_UP_ROUNDS):
        for name in draw.sample(names, len(names)):
            dist.barrier()
            since = time.perf_counter()
            steps[name]()
            longest = torch.tensor(time.perf_counter() - since)
            dist.all_reduce(longest, dist.ReduceOp.MAX)
            if number >= WARM_UP_ROUNDS:
                taken[name].append(longest.item())
        goes_on = torch.tensor(int(time.monotonic() - began < most_s))
        dist.broadcast(goes_on, 0)
        if not goes_on:
            break
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(taken))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
