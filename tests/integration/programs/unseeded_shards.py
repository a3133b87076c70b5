"""A toy under FSDP2 that seeds nothing: built on meta, its parameters drawn when they are sharded.
`unseeded_shards.py` under torchrun."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

STEPS, WIDTH, LAYERS = 3, 16, 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


def reset(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.LayerNorm):
            part.reset_parameters()


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    with torch.device("meta"):
        model = nn.Sequential(*(Block() for _ in range(LAYERS)))
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mesh=mesh, mp_policy=precision)
    fully_shard(model, mesh=mesh, mp_policy=precision)
    model.to_empty(device="cpu")
    reset(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        loss = model(torch.randn(8, WIDTH)).square().sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {dist.get_rank()} step {step} {loss.item():.9g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
