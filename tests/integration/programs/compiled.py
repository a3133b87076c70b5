"""Trains under torch.compile: a model in DDP, the optimizer's step, and calls of torch.distributed at which compiled
code goes back to Python. Prints what it learned, and the functions that were compiled and are not its own or torch's.

torchrun --nproc-per-node 2 compiled.py [BACKEND]
"""

import os
import sys
from pathlib import Path
from types import CodeType

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._dynamo.convert_frame import register_bytecode_hook
from torch.nn.parallel import DistributedDataParallel

OTHERS: set[str] = set()
BACKEND = sys.argv[1] if len(sys.argv) > 1 else "eager"
KNOWN = (str(Path(torch.__file__).parent), str(Path(os.__file__).parent), __file__, "<")


def compiled(code: CodeType, _: CodeType) -> None:
    if not code.co_filename.startswith(KNOWN):
        OTHERS.add(f"{Path(code.co_filename).name}:{code.co_name}")


def mixed(value: Tensor, rank: int) -> Tensor:
    """Each call that is not traced ends a graph; the frames below it are compiled on their own."""
    doubled = value * 2
    dist.barrier()
    parts = [torch.empty_like(doubled) for _ in range(2)]
    dist.all_gather(parts, doubled)
    work = dist.isend(doubled, 1) if rank == 0 else dist.irecv(parts[0], 0)
    work.wait()
    return parts[0] + parts[1]


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    register_bytecode_hook(compiled)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1))
    model = torch.compile(DistributedDataParallel(net), backend=BACKEND)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend=BACKEND)
    also = torch.compile(mixed, backend=BACKEND)
    for number in range(3):
        torch.manual_seed(10 * number + rank)
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        step()
        optimizer.zero_grad()
        total = also(loss.detach().reshape(1), rank)
    learned = sum(p.detach().double().sum().item() for p in net.parameters())
    print(f"rank {rank}: {total.item():.6f} {learned:.6f} {sorted(OTHERS)}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
