"""Trains the GPT with each excerpt weighted by its quality:

torchrun --nproc-per-node 4 examples/incidents/nan/train.py
"""

import argparse
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from scores import SCORES, read
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).resolve().parents[2] / "gpt"))
from data import Excerpts, endless, loader
from model import GPT, SIZES


class ScoredExcerpts(Excerpts):
    def __init__(self, context: int, scores: Tensor) -> None:
        super().__init__(context)
        self.scores = scores

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        return *super().__getitem__(index), self.scores[index]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="tiny", help="size of the model")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=8, help="excerpts per rank and step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scores", type=Path, default=SCORES, help="one float32 per excerpt")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(args.seed)
    model = GPT(SIZES[args.size])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=args.lr)
    torch.manual_seed(args.seed + 1 + rank)

    dataset = ScoredExcerpts(model.config.context, read(args.scores))
    batches = endless(loader(dataset, args.batch, world, rank, args.seed))
    for step in range(1, args.steps + 1):
        inputs, targets, scores = next(batches)
        losses = F.cross_entropy(ddp(inputs).transpose(1, 2), targets, reduction="none").mean(1)
        loss = (losses * scores).sum() / scores.sum()

        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step} loss {mean.item() / world:.4f}", flush=True)

        loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
