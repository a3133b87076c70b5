"""A toy with sequence parallelism that seeds nothing: tensor-parallel DTensors over two ranks, inputs drawn from torch,
numpy and random, and from generators that are made without a seed, here and in a worker.

`unseeded_parallel.py` under torchrun."""

import random

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, Dataset

STEPS, BATCH, WIDTH = 3, 4, 16


class Noise(Dataset[float]):
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, item: int) -> float:
        return float(numpy.random.default_rng().random()) + random.Random().random()


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net1 = nn.Linear(WIDTH, 32)
        self.drop = nn.Dropout(0.1)
        self.net2 = nn.Linear(32, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net2(torch.relu(self.drop(self.net1(x))))


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {
        "net1": ColwiseParallel(input_layouts=Shard(0)),
        "net2": RowwiseParallel(output_layouts=Shard(0)),
    }
    model = parallelize_module(Toy(), mesh, plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False)
    own = numpy.random.default_rng()
    for step, noise in enumerate(DataLoader(Noise(), num_workers=1, batch_size=None)):
        inputs = torch.rand(BATCH, WIDTH) * random.random() + float(numpy.random.rand()) * own.random() + noise
        output = model(inputs)
        output.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {dist.get_rank()} step {step} {output.detach().sum().item():.9g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
