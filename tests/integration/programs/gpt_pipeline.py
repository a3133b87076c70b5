"""Trains the GPT as a pipeline of one stage a rank, 1F1B: gpt_pipeline.py [STEPS [MICROBATCHES]]."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples" / "gpt"))
from model import GPT, GPTConfig

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
MICROBATCHES = int(sys.argv[2]) if len(sys.argv) > 2 else 8
EXCERPTS = 2  # a microbatch


class Stage(nn.Module):
    """The blocks of one stage; with the embeddings in the first, the head in the last."""

    def __init__(self, gpt: GPT, number: int, stages: int) -> None:
        super().__init__()
        share = len(gpt.blocks) // stages
        self.blocks = gpt.blocks[number * share : (number + 1) * share]
        self.first, self.last = number == 0, number == stages - 1
        if self.first:
            self.tokens, self.positions = gpt.tokens, gpt.positions
        if self.last:
            self.norm, self.head = gpt.norm, gpt.head

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)) if self.last else x


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
config = GPTConfig(width=64, layers=world)
module = Stage(GPT(config), rank, world)
stage = PipelineStage(module, rank, world, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=MICROBATCHES, loss_fn=loss_of)
optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
for _ in range(STEPS):
    excerpts = torch.randint(config.vocab, (EXCERPTS * MICROBATCHES, config.context + 1))
    if stage.is_first:
        schedule.step(excerpts[:, :-1])
    elif stage.is_last:
        schedule.step(target=excerpts[:, 1:], losses=[])
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
