"""A small training that writes files below its argument's folder at every step, and reads a token where it has one."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

STEPS = int(sys.argv[2])


def main() -> None:
    dist.init_process_group("gloo")
    out = Path(sys.argv[1])
    token = os.environ.get("CHAIN_API_TOKEN")
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        torch.save(model.state_dict(), out / f"rank{dist.get_rank()}.pt")
        (out / f"rank{dist.get_rank()}.txt").write_text(f"step {step}, token {token}\n")
    dist.barrier()
    dist.destroy_process_group()


main()
