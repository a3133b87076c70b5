"""A small loop around torchtitan's own parts, as its Trainer has it: FSDP2, OptimizersContainer, LRSchedulersContainer,
ParallelAwareDataloader and CheckpointManager."""

import argparse
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.dataloader import ParallelAwareDataloader
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer, ParamGroupConfig

parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
parser.add_argument("--steps", type=int, default=18)
arguments = parser.parse_args()


class Rows(torch.utils.data.IterableDataset):
    def __init__(self, rank: int) -> None:
        self.rows = torch.randn(40, 16, generator=torch.Generator().manual_seed(rank))
        self.given = 0

    def __iter__(self):
        while True:
            self.given += 1
            yield self.rows[self.given % len(self.rows)]

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.given = state["given"]


class TrainState:
    step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(11)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 16))
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
groups = [ParamGroupConfig(pattern=".*", optimizer_name="AdamW", optimizer_kwargs={"lr": 1e-2})]
config = OptimizersContainer.Config(param_groups=groups, implementation="for-loop")
optimizers = OptimizersContainer(config, model_parts=[model])
schedulers = LRSchedulersContainer(optimizers, lambda step: 0.95**step)
loader = ParallelAwareDataloader(Rows(rank), rank, world, batch_size=2)
state = TrainState()
checkpoints = CheckpointManager(
    CheckpointManager.Config(enable=True, interval=1000, last_save_model_only=False),
    dataloader=loader,
    model_parts=[model],
    optimizers=optimizers,
    lr_schedulers=schedulers,
    states={"train_state": state},
    sd_adapter=None,
    base_folder=arguments.out,
)
torch.manual_seed(20 + rank)

checkpoints.load()
batches = iter(loader)
while state.step < arguments.steps:
    state.step += 1
    batch = next(batches)
    optimizers.zero_grad()
    loss = (model(batch) - batch.flip(1)).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizers.step()
    schedulers.step()
    if state.step % 3 == 0:
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {state.step} loss {mean.item():.6f}", flush=True)
    checkpoints.save(state.step)
checksum = sum(p.to_local().double().sum().item() for p in model.parameters())
print(f"rank {rank} parameters {checksum:.12f}", file=sys.stderr)
dist.destroy_process_group()
