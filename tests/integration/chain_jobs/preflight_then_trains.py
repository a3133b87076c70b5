"""Each rank checks that all can communicate, destroys its group, and starts the training, which has its own.

Argument: a path for files by which the ranks find each other.
"""

from __future__ import annotations

import os
import subprocess
import sys

import torch
import torch.distributed as dist


def reduce(place: str) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=size)
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


path, *stage = sys.argv[1:]
reduce(path + "".join(stage))
if not stage:
    subprocess.run([sys.executable, sys.argv[0], path, "training"], check=True)
