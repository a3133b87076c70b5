"""A rank that issues tiny all_reduces, 200 a step, as fast as it can, and slowly where it is waited for: behind the
first FEW until FOLDER/go exists, and behind MANY until it is ended. `long_job.py FOLDER FEW MANY`"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

PER_STEP = 200
PAUSE_S = 0.2  # a step


def main() -> None:
    dist.init_process_group("gloo")
    folder, (few, many) = Path(sys.argv[1]), map(int, sys.argv[2:])
    value = torch.ones(4)
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    issued, goes_on = 0, False
    while True:
        for _ in range(PER_STEP):
            dist.all_reduce(value)
        weight.sum().backward()
        optimizer.step()
        issued += PER_STEP
        if issued in (few, many):
            print(f"at {issued}", flush=True)
        if issued >= many or (issued >= few and not goes_on):
            time.sleep(PAUSE_S)
            goes_on = goes_on or (folder / "go").exists()


main()
