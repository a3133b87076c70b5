"""Ranks that issue five collectives and then sleep; rank 1 is killed in its sleep by somebody else (the first argument
names the file in which it writes its PID)."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for number in range(5):
    dist.all_reduce(torch.full((4,), float(number)))
if dist.get_rank() == 1:
    written = Path(sys.argv[1])
    written.with_suffix(".part").write_text(str(os.getpid()))
    written.with_suffix(".part").rename(written)
time.sleep(600 if dist.get_rank() == 1 else 20)
