"""Two workers of Ray Train on this machine: trains_with_ray.py FOLDER [RANK_THAT_RAISES]"""

import sys

import ray
import ray.train.torch
import torch
from ray.train import RunConfig, ScalingConfig


def train(config: dict[str, int]) -> None:
    rank = ray.train.get_context().get_world_rank()
    torch.manual_seed(rank)
    model = ray.train.torch.prepare_model(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(5):
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 3 and rank == config["raises"]:
            raise ValueError("bad batch")


if __name__ == "__main__":
    raises = int(sys.argv[2]) if len(sys.argv) > 2 else -1
    ray.init(num_cpus=2, include_dashboard=False)
    ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"raises": raises},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=sys.argv[1]),
    ).fit()
