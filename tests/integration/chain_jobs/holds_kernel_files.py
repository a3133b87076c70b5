"""Trains while it holds files of the kernel open, as a program does that watches its own process or machine.

`holds_kernel_files.py STEPS PATH...`
"""

import sys
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with ExitStack() as stack:
        held = [stack.enter_context(Path(path).open()) for path in sys.argv[2:]]
        for _ in range(int(sys.argv[1])):
            for file in held:
                file.seek(0)
                assert file.read(1)
            optimizer.zero_grad()
            model(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
