"""Runs a training script and prints, after every optimizer step, a checksum of this rank's parameters.

torchrun --nproc-per-node 2 checksums.py SCRIPT [ARGUMENT...]
"""

from __future__ import annotations

import hashlib
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

steps = 0


def show(optimizer: Any, *_: Any) -> None:
    global steps
    steps += 1
    digest = hashlib.sha256()
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        digest.update(local.detach().contiguous().view(torch.uint8).numpy().tobytes())
    print(f"\nchecksum rank {os.environ['RANK']} step {steps} {digest.hexdigest()[:16]}\n", end="", flush=True)


if __name__ == "__main__":
    register_optimizer_step_post_hook(show)
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
