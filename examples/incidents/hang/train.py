"""Trains the GPT with one part of the corpus per rank, each read once from its beginning to its end:

torchrun --nproc-per-node 4 examples/incidents/hang/train.py
"""

import argparse
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset

sys.path.append(str(Path(__file__).resolve().parents[2] / "gpt"))
from data import Excerpts
from model import GPT, SIZES


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="tiny", help="size of the model")
    parser.add_argument("--steps", type=int, default=40, help="maximum number of steps")
    parser.add_argument("--batch", type=int, default=16, help="excerpts per rank and step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--parts", type=float, nargs="+", default=[0.3, 0.3, 0.037, 0.363], help="share of the corpus for each rank"
    )
    parser.add_argument("--out", type=Path, help="folder for the trained model (default: a temporary one)")
    parser.add_argument("--timeout", type=float, default=1800, metavar="SECONDS", help="timeout of a collective")
    return parser.parse_args()


def part(dataset: Excerpts, shares: list[float], rank: int) -> Subset:
    first, last = (int(sum(shares[:n]) * len(dataset)) for n in (rank, rank + 1))
    return Subset(dataset, range(first, last))


def out_folder(wanted: Path | None) -> Path:
    """Rank 0 chooses for all."""
    choice = [None]
    if dist.get_rank() == 0:
        choice = [str(wanted or tempfile.mkdtemp(prefix="gpt-"))]
    dist.broadcast_object_list(choice, src=0)
    folder = Path(choice[0])
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def wait_for(path: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear within {seconds:.0f} s")
        time.sleep(0.2)


def main() -> None:
    args = parse_args()
    dist.init_process_group("gloo", timeout=timedelta(seconds=args.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    trained = out_folder(args.out) / "model.pt"

    torch.manual_seed(args.seed)
    model = GPT(SIZES[args.size])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=args.lr)
    torch.manual_seed(args.seed + 1 + rank)

    batches = DataLoader(part(Excerpts(model.config.context), args.parts, rank), args.batch, drop_last=True)
    for step, (inputs, targets) in enumerate(batches, start=1):
        loss = F.cross_entropy(ddp(inputs).flatten(0, 1), targets.flatten())

        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step} loss {mean.item() / world:.4f}", flush=True)

        loss.backward()
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

        if step == args.steps:
            break

    if rank == 0:
        partial = trained.with_suffix(".partial")
        torch.save(model.state_dict(), partial)
        partial.rename(trained)
    wait_for(trained, seconds=3600)  # every rank goes on to evaluate it
    print(f"rank {rank} sees {trained.name}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
