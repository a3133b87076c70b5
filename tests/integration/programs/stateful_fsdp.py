"""The GPT under FSDP2 x TP, with dropout, gradient accumulation, a GradScaler, a schedule and a loader with workers in
the middle of an epoch; it goes on from where `restore_point` says."""

import argparse
from collections.abc import Iterator

import torch
import torch.distributed as dist
from data import Excerpts
from model import GPT, GPTConfig
from prismdbg_hooks import restore_point
from prismdbg_hooks import step as begin_step
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader

PLAN = {
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.out": RowwiseParallel(),
    "mlp.up": ColwiseParallel(),
    "mlp.down": RowwiseParallel(),
}


class Batches:
    """Shuffled excerpts, epoch after epoch; it knows its epoch and its place in it."""

    def __init__(self, dataset: Excerpts, seed: int, workers: int) -> None:
        self.dataset, self.seed, self.workers = dataset, seed, workers
        self.epoch = self.taken = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            order = torch.randperm(24, generator=torch.Generator().manual_seed(self.seed + self.epoch)).tolist()
            left = order[self.taken * 2 :]
            for batch in DataLoader(self.dataset, batch_size=2, sampler=left, num_workers=self.workers):
                self.taken += 1
                yield batch
            self.epoch, self.taken = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.taken = state["epoch"], state["taken"]


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=9)
parser.add_argument("--tp", type=int, default=2)
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--by-hand", action="store_true")
arguments = parser.parse_args()

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world // arguments.tp, arguments.tp), mesh_dim_names=("dp", "tp"))
torch.manual_seed(3)
model = GPT(GPTConfig(width=32, layers=2))
for block in model.blocks:
    parallelize_module(block, mesh["tp"], PLAN)
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
replica = mesh["dp"].get_local_rank()
batches = Batches(Excerpts(model.config.context), replica, arguments.workers)
torch.manual_seed(10 + replica)

start = restore_point(model=model, optimizer=optimizer, schedule=schedule, scaler=scaler, batches=batches) or 0
source = iter(batches)
for step in range(start, arguments.steps):
    if arguments.by_hand:
        begin_step(step)
    for _ in range(2):
        inputs, targets = next(source)
        loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()) / 2
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    schedule.step()
    optimizer.zero_grad()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"step {step} loss {mean.item():.6f} scale {scaler.get_scale()}", flush=True)
dist.destroy_process_group()
