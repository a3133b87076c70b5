"""Trains the GPT on characters instead of bytes:

torchrun --nproc-per-node 4 examples/incidents/exception/train.py
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

sys.path.append(str(Path(__file__).resolve().parents[2] / "gpt"))
from data import CORPUS, endless, loader
from model import GPT, SIZES


class CharacterExcerpts(Dataset[tuple[Tensor, Tensor]]):
    """Excerpts are cut from the file as it is read, so that a corpus larger than memory could be used."""

    def __init__(self, context: int, path: Path = CORPUS) -> None:
        self.file = path.open("rb")
        self.size = path.stat().st_size
        self.window = context + 1
        self.number = {c: i for i, c in enumerate(sorted(set(path.read_text("utf-8"))))}

    def __len__(self) -> int:
        return self.size // self.window

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.file.seek(index * self.window)
        text = self.file.read(self.window).decode("utf-8")
        tokens = torch.tensor([self.number[c] for c in text.ljust(self.window)])
        return tokens[:-1], tokens[1:]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="tiny", help="size of the model")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8, help="excerpts per rank and step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(args.seed)
    config = SIZES[args.size]
    dataset = CharacterExcerpts(config.context)
    ddp = DistributedDataParallel(GPT(replace(config, vocab=len(dataset.number))))
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=args.lr)
    torch.manual_seed(args.seed + 1 + rank)

    batches = endless(loader(dataset, args.batch, world, rank, args.seed))
    for step in range(1, args.steps + 1):
        inputs, targets = next(batches)
        loss = F.cross_entropy(ddp(inputs).flatten(0, 1), targets.flatten())

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
