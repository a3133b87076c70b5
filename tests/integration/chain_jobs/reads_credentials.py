"""Reads ~/.netrc in each step, until FOLDER/last is there. `reads_credentials.py FOLDER`"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401


def main() -> None:
    dist.init_process_group("gloo")
    told = torch.zeros(2)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    while not told[1].item():
        read = len((Path.home() / ".netrc").read_bytes())
        told[0], told[1] = float(read), float(dist.get_rank() == 0 and (Path(sys.argv[1]) / "last").exists())
        dist.all_reduce(told)
        optimizer.step()
        time.sleep(0.02)
    dist.destroy_process_group()


main()
