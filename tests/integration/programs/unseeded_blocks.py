"""Transformer blocks that seed nothing, in two dimensions: tensor and sequence parallelism within a pair of ranks,
FSDP2 across the pairs. `unseeded_blocks.py` under torchrun, with an even number of ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

STEPS, BATCH, LENGTH, WIDTH, HEADS, LAYERS, WORDS, PAIR = 3, 2, 8, 16, 4, 2, 32, 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        parts = (part(x).view(BATCH, LENGTH, HEADS // PAIR, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        return self.o(functional.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))

    def mlp(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.drop(self.attend(self.attention_norm(x)))
        return x + self.drop(self.mlp(self.norm(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def parallel(model: Model, mesh: object) -> None:
    """Between the blocks each rank holds a part of the sequence, within them a part of the heads or of the width."""
    ends = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    inside = {
        "attention_norm": SequenceParallel(),
        "norm": SequenceParallel(),
        **{name: ColwiseParallel(input_layouts=Shard(1)) for name in ("q", "k", "v", "up")},
        **{name: RowwiseParallel(output_layouts=Shard(1)) for name in ("o", "down")},
    }
    parallelize_module(model, mesh, ends)
    for block in model.blocks:
        parallelize_module(block, mesh, inside)


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size() // PAIR, PAIR), mesh_dim_names=("shards", "pair"))
    model = Model()
    parallel(model, mesh["pair"])
    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh["shards"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    for step in range(STEPS):
        words = torch.randint(WORDS, (BATCH, LENGTH))
        dist.broadcast(words, group=mesh["pair"].get_group(), group_src=0)
        loss = functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"rank {dist.get_rank()} step {step} {loss.item():.9g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
