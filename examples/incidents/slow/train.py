"""Trains the GPT on a corpus of which a part was archived; each rank reads its own quarter from beginning to end:

torchrun --nproc-per-node 4 examples/incidents/slow/train.py
"""

import argparse
import bz2
import sys
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset

sys.path.append(str(Path(__file__).resolve().parents[2] / "gpt"))
from data import CORPUS
from model import GPT, SIZES


class ArchivedExcerpts(Dataset[tuple[Tensor, Tensor]]):
    """Excerpt i is (input, target), read where it lies: in the corpus, or in a compressed copy of it."""

    def __init__(self, context: int, archived: range) -> None:
        self.context = context
        self.archived = archived
        self.archive = bz2.compress(CORPUS.read_bytes())

    def __len__(self) -> int:
        return (CORPUS.stat().st_size - 1) // self.context

    def open(self, index: int) -> BinaryIO:
        return bz2.open(BytesIO(self.archive)) if index in self.archived else CORPUS.open("rb")

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        with self.open(index) as file:
            file.seek(index * self.context)
            text = file.read(self.context + 1)
        tokens = torch.tensor(list(text))
        return tokens[:-1], tokens[1:]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="tiny", help="size of the model")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--batch", type=int, default=8, help="excerpts per rank and step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--archived", type=int, nargs=2, default=[4590, 5000], metavar=("FIRST", "END"), help="archived excerpts"
    )
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

    dataset = ArchivedExcerpts(model.config.context, range(*args.archived))
    part = len(dataset) // world
    batches = DataLoader(Subset(dataset, range(rank * part, (rank + 1) * part)), args.batch)
    for step, (inputs, targets) in zip(range(1, args.steps + 1), batches, strict=False):
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
