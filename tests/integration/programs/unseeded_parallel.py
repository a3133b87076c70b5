"""A toy with sequence parallelism that seeds nothing: tensor-parallel DTensors over two ranks, inputs drawn from torch,
numpy and random. `unseeded_parallel.py` under torchrun."""

import random

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

STEPS, BATCH, WIDTH = 3, 4, 16


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
    for step in range(STEPS):
        inputs = torch.rand(BATCH, WIDTH) * random.random() + float(numpy.random.rand())
        output = model(inputs)
        output.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {dist.get_rank()} step {step} {output.detach().sum().item():.9g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
