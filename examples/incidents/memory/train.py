"""Trains the GPT; rank 0 looks at a few excerpts that are held out, after each step:

torchrun --nproc-per-node 4 examples/incidents/memory/train.py
"""

import argparse
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Subset, default_collate

sys.path.append(str(Path(__file__).resolve().parents[2] / "gpt"))
from data import Excerpts, endless, loader
from model import GPT, SIZES


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="tiny", help="size of the model")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8, help="excerpts per rank and step")
    parser.add_argument("--held-out", type=int, default=4, help="number of excerpts that are not used for training")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def loss_of(model: torch.nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def main() -> None:
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(args.seed)
    model = GPT(SIZES[args.size])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=args.lr)
    torch.manual_seed(args.seed + 1 + rank)

    excerpts = Excerpts(model.config.context)
    count = len(excerpts) - args.held_out
    held_out = default_collate([excerpts[i] for i in range(count, len(excerpts))])
    batches = endless(loader(Subset(excerpts, range(count)), args.batch, world, rank, args.seed))
    curve = []
    for step in range(1, args.steps + 1):
        loss = loss_of(ddp, *next(batches))

        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step} loss {mean.item() / world:.4f}", flush=True)

        loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

        if rank == 0:
            curve.append(loss_of(model, *held_out))

    if rank == 0:
        print("held out", *(f"{loss.item():.4f}" for loss in curve), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
