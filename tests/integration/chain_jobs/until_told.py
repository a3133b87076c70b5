"""Trains until FOLDER/last names a step that is reached; only that step decides its end.

`until_told.py FOLDER [PAUSE [RANK]]`. After each step it rests for PAUSE seconds, so that what is tested meanwhile has
the processors. Once FOLDER/nan is there, RANK sends NaNs.
"""

import hashlib
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch.nn.parallel import DistributedDataParallel


def is_told(last: Path, step: int) -> bool:
    try:
        return step >= int(last.read_text())
    except (FileNotFoundError, ValueError):  # not there, or not whole yet
        return False


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch.manual_seed(1 + dist.get_rank())
    pause_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.002
    wrong = len(sys.argv) > 3 and dist.get_rank() == int(sys.argv[3])
    step, told = 0, torch.zeros(1)
    while not told.item():
        optimizer.zero_grad(set_to_none=False)
        data = torch.randn(16, 64)
        if wrong and (Path(sys.argv[1]) / "nan").exists():
            data[0, 0] = float("nan")
        model(data).square().mean().backward()
        optimizer.step()
        step += 1
        told.fill_(float(dist.get_rank() == 0 and is_told(Path(sys.argv[1]) / "last", step)))
        dist.all_reduce(told)
        time.sleep(pause_s)
    values = torch.cat([p.detach().flatten() for p in model.parameters()])
    digest = hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]
    print(f"rank {dist.get_rank()} parameters {digest} after {step}", flush=True)
    dist.destroy_process_group()


main()
