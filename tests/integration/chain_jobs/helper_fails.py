"""Each rank starts a program of its own, which imports torch and fails. Rank 1 then raises."""

from __future__ import annotations

import subprocess
import sys

import torch
import torch.distributed as dist

HELPER = "import torch; raise ValueError('the helper fails')"


def main() -> None:
    dist.init_process_group("gloo")
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        model(torch.ones(3, 4)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        if step == 2:
            assert subprocess.run([sys.executable, "-c", HELPER], check=False).returncode == 1
        if step == 3 and dist.get_rank() == 1:
            raise RuntimeError("the training fails")
    dist.destroy_process_group()


main()
