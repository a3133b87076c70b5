"""Trains the GPT with DistributedDataParallel:

torchrun --nproc-per-node 4 examples/gpt/train_ddp.py --steps 60
"""

import argparse
import hashlib
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from data import Excerpts, endless, loader
from model import GPT, SIZES
from torch.nn.parallel import DistributedDataParallel


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="1m", help="size of the model")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8, help="excerpts per rank and step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="processes that load data, per rank")
    parser.add_argument("--log-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--checkpoint", type=Path, help="save here at the end; continue from here if it exists")
    parser.add_argument("--checkpoint-every", type=int, default=0, metavar="STEPS", help="also save every STEPS steps")
    return parser.parse_args()


def save(path: Path, model: GPT, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Whole or not at all: a job may be killed while it writes."""
    partial = path.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, partial)
    partial.rename(path)


def checksum(model: torch.nn.Module) -> str:
    data = (p.detach().cpu().contiguous().view(torch.uint8).numpy() for p in model.parameters())
    return hashlib.sha256(b"".join(array.tobytes() for array in data)).hexdigest()[:16]


def main() -> None:
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(args.seed)  # the same parameters everywhere
    model = GPT(SIZES[args.size])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=args.lr)
    start = 0
    if args.checkpoint and args.checkpoint.exists():
        state = torch.load(args.checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    torch.manual_seed(args.seed + 1 + rank + start * world)  # each rank drops out other values

    dataset = Excerpts(model.config.context)
    batches = endless(loader(dataset, args.batch, world, rank, args.seed + start, args.workers))
    began = time.perf_counter()
    for step in range(start + 1, args.steps + 1):
        inputs, targets = next(batches)
        loss = F.cross_entropy(ddp(inputs).flatten(0, 1), targets.flatten())

        if step % args.log_every == 0 or step in (start + 1, args.steps):
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                speed = (step - start) / (time.perf_counter() - began)
                print(f"step {step} loss {mean.item() / world:.4f} ({speed:.1f} steps/s)", flush=True)

        loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

        if rank == 0 and args.checkpoint and args.checkpoint_every and step % args.checkpoint_every == 0:
            save(args.checkpoint, model, optimizer, step)

    dist.barrier()
    if rank == 0 and args.checkpoint:
        save(args.checkpoint, model, optimizer, args.steps)
    print(f"rank {rank} parameters {checksum(model)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
