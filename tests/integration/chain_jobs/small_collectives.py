"""500 tiny collectives a step, slowly once FOLDER/slow exists, until FOLDER/last does. Once FOLDER/nan exists, the
last rank sends NaN. `small_collectives.py FOLDER`"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

PER_STEP = 500


def told(folder: Path, what: str) -> bool:
    """As rank 0 sees it, for all."""
    there = torch.tensor([float((folder / what).exists())])
    dist.broadcast(there, 0)
    return bool(there.item())


def main() -> None:
    dist.init_process_group("gloo")
    folder = Path(sys.argv[1])
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.01)
    is_last_rank = dist.get_rank() == dist.get_world_size() - 1
    while not told(folder, "last"):
        if told(folder, "nan") and is_last_rank:
            weight.data.fill_(float("nan"))
        for _ in range(PER_STEP):
            dist.all_reduce(weight.detach().clone())
        (weight * weight).sum().backward()
        optimizer.step()
        if (folder / "slow").exists():
            time.sleep(0.1)
    print(f"weight {weight.tolist()}", flush=True)
    dist.destroy_process_group()


main()
