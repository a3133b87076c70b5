"""500 tiny collectives a step, slowly once FOLDER/slow exists, until FOLDER/last does. `small_collectives.py FOLDER`"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

PER_STEP = 500


def main() -> None:
    dist.init_process_group("gloo")
    folder = Path(sys.argv[1])
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.01)
    while not (folder / "last").exists():
        for _ in range(PER_STEP):
            dist.all_reduce(weight.detach().clone())
        (weight * weight).sum().backward()
        optimizer.step()
        if (folder / "slow").exists():
            time.sleep(0.1)
    print(f"weight {weight.tolist()}", flush=True)
    dist.destroy_process_group()


main()
