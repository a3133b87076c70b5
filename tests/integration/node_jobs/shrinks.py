"""Trains until FOLDER/last is there: `shrinks.py FOLDER`. Once FOLDER/nan is there, rank 0 sends NaNs.

The ranks meet in a file: torchrun's own store lets a second attempt find addresses of the first one.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[1] / "programs"))
import uncompiled  # noqa: F401

FOLDER = Path(sys.argv[1])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def main() -> None:
    meeting = FOLDER / f"meeting.{os.environ['TORCHELASTIC_RESTART_COUNT']}.{WORLD}"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=RANK, world_size=WORLD)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ends = torch.zeros(1)
    while not ends.item():
        optimizer.zero_grad(set_to_none=False)  # gloo's threads must not be the last to hold a tensor
        is_wrong = RANK == 0 and (FOLDER / "nan").exists()
        model(torch.full((2, 4), float("nan") if is_wrong else 1.0)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        ends.fill_(float(RANK == 0 and (FOLDER / "last").exists()))
        dist.all_reduce(ends)
        time.sleep(0.05)
    dist.destroy_process_group()


main()
