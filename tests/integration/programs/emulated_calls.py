"""What torch's bare fake backend breaks off the root: each kind of call says in one line of JSON what came of it.

emulated_calls.py PP,DP,TP FOLDER RANKS
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

CPU = torch.device("cpu")
STAGES, REPLICAS, PARTS = (int(size) for size in sys.argv[1].split(","))
ASKED = [int(rank) for rank in sys.argv[3].split(",")]
dist.init_process_group("gloo")
RANK, WORLD = dist.get_rank(), dist.get_world_size()
MESH = init_device_mesh("cpu", (STAGES, REPLICAS, PARTS), mesh_dim_names=("pp", "dp", "tp"))


def say(call: Callable[[], Any]) -> None:
    print(json.dumps({"rank": RANK, "call": call.__name__, "value": call()}), flush=True)


def linear(size: int) -> nn.Module:
    module = nn.Linear(size, size)
    nn.init.ones_(module.weight)
    return module


def ddp() -> list[float]:
    module = linear(4)
    DistributedDataParallel(module, process_group=MESH["dp"].get_group())(torch.ones(2, 4)).sum().backward()
    return module.weight.grad[0].tolist()


def ddp_over_the_world() -> list[float]:
    module = linear(4)
    DistributedDataParallel(module)(torch.ones(2, 4)).sum().backward()
    return module.weight.grad[0].tolist()


def fsdp2() -> list[int]:
    module = linear(64)
    fully_shard(module, mesh=MESH["dp"])
    module(torch.ones(2, 64)).sum().backward()
    return list(module.weight.grad.to_local().shape)


def dtensor() -> list[list[float]]:
    parts = distribute_tensor(torch.arange(float(PARTS)), MESH["tp"], [Shard(0)])
    whole = distribute_tensor(torch.arange(2.0), MESH["dp"], [Replicate()])
    return [parts.to_local().tolist(), whole.to_local().tolist()]


def garbage() -> bool:
    """Whether every value that is received is a number."""
    buffers = [torch.full((8,), float("nan")) for _ in range(3)]
    dist.recv(buffers[0], (RANK + 1) % WORLD, tag=7)
    dist.recv(buffers[1], tag=7)
    dist.broadcast(buffers[2], 1)
    return all(bool(b.isfinite().all()) and float(b.std()) > 0 for b in buffers)


def barriers() -> str:
    dist.barrier()
    dist.monitored_barrier()
    return "passed"


def objects() -> list[Any]:
    word: list[Any] = [{"by": RANK}] if RANK == 0 else [None]
    dist.broadcast_object_list(word, 0)
    part: list[Any] = [None]
    dist.scatter_object_list(part, [f"for {rank}" for rank in range(WORLD)] if RANK == 0 else None, 0)
    said: list[Any] = [None] * WORLD
    dist.all_gather_object(said, RANK)
    return [word[0], part[0], said[RANK]]


def gathered_objects() -> list[Any] | None:
    """By the last rank: what it said itself, and what rank 0 did, which ran."""
    said: list[Any] | None = [None] * WORLD if RANK == WORLD - 1 else None
    dist.gather_object({"by": RANK}, said, WORLD - 1)
    return [said[RANK], said[0]] if said is not None else None


def sent_objects() -> Any:
    """From rank 0, which sends one to whoever is asked for."""
    if RANK == 0:
        for rank in ASKED:
            dist.send_object_list([f"to {rank}"], rank)
        return None
    word: list[Any] = [None]
    if RANK in ASKED:
        dist.recv_object_list(word, 0)
    return word[0]


def fsdp1() -> bool:
    module = FullyShardedDataParallel(linear(8), MESH["dp"].get_group(), device_id=CPU)
    module(torch.ones(2, 8)).sum().backward()
    return all(bool(p.grad.isfinite().all()) for p in module.parameters() if p.grad is not None)


def subgroups() -> int:
    mine, groups = dist.new_subgroups(PARTS)
    x = torch.ones(1)
    dist.all_reduce(x, group=mine)
    return int(x) * 100 + len(groups)


def pipeline() -> bool:
    stage = PipelineStage(linear(8), MESH["pp"].get_local_rank(), STAGES, CPU, group=MESH["pp"].get_group())
    schedule = Schedule1F1B(stage, n_microbatches=STAGES, loss_fn=lambda a, b: ((a - b) ** 2).mean())
    losses: list[torch.Tensor] = []
    batch = torch.ones(2 * STAGES, 8)
    if stage.is_first:
        schedule.step(batch)
    else:
        schedule.step(**({"target": batch, "losses": losses} if stage.is_last else {}))
    return all(bool(loss.isfinite()) for loss in losses)


def checkpoint() -> list[str]:
    folder = f"{sys.argv[2]}/checkpoint"
    dcp.save(
        {"whole": torch.ones(3), "parts": distribute_tensor(torch.ones(WORLD), MESH["dp"], [Shard(0)])},
        checkpoint_id=folder,
    )
    return sorted(path.name for path in Path(folder).glob(f"__{RANK}_*"))


def store() -> list[Any]:
    shared = dist.TCPStore("127.0.0.1", 29555, WORLD, RANK == 0)
    if RANK == 0:
        shared.set("word", "of rank 0")
    shared.set(f"here/{RANK}", "yes")
    return [shared.get("word").decode(), shared.get(f"here/{WORLD - 1}").decode(), shared.add("arrived", 1)]


def thousands_of_groups() -> int:
    groups = [dist.new_group(range(start, start + PARTS)) for start in range(0, WORLD, PARTS)]
    mine = groups[RANK // PARTS]
    x = torch.ones(1)
    dist.all_reduce(x, group=mine)
    return int(x)


for each in (
    ddp,
    ddp_over_the_world,
    fsdp2,
    dtensor,
    garbage,
    barriers,
    objects,
    gathered_objects,
    sent_objects,
    fsdp1,
    subgroups,
    pipeline,
    checkpoint,
    store,
    thousands_of_groups,
):
    say(each)
dist.destroy_process_group()
