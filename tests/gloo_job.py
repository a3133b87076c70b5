"""A job for torchrun: two gloo ranks that add up without end. Run as `gloo_job.py FOLDER [STEP]`; at STEP rank 0 stops
issuing, so that rank 1 hangs in its collective. Each rank answers on `FOLDER/<rank>/agent` with where it is.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from answering import answer_on


class Progress:
    def __init__(self) -> None:
        self.step = 0
        self.total = 0.0
        self.state = "running"


def main(folder: Path, stop_at: int) -> None:
    dist.init_process_group("gloo")
    progress = Progress()
    answer_on(folder / str(dist.get_rank()) / "agent", lambda: vars(progress))
    ones = torch.ones(1000)
    while True:
        if progress.step == stop_at and dist.get_rank() == 0:
            progress.state = "stopped"
            threading.Event().wait()
        try:
            dist.all_reduce(ones)
        except RuntimeError as error:
            progress.state = f"alone: {error}"
            threading.Event().wait()
        ones /= dist.get_world_size()
        progress.step += 1
        progress.total = float(ones.sum())
        time.sleep(0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else -1)
