"""Reads a file of the working directory that it is started in, goes elsewhere, and fails there; half a character is in
its exception. With `removed`, the new directory is gone before the first collective."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

first = Path("README.md").read_text()[:8]
elsewhere = tempfile.mkdtemp()
os.chdir(elsewhere)
if "removed" in sys.argv:
    Path(elsewhere).rmdir()
dist.init_process_group("gloo")
for _ in range(5):
    dist.all_reduce(torch.ones(4))
if dist.get_rank() == 1:
    raise ValueError(f"{first} \ud83d")
