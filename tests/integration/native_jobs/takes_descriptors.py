"""A rank whose program closes every file it did not open, as daemons do, and opens one of its own under that number."""

from __future__ import annotations

import os
from pathlib import Path

import rank
import torch
import torch.distributed as dist
from rank import ARGUMENTS, FOLDER, native

rank.record()
native.window("payloads" in ARGUMENTS, 0, 0)
rank.join()
dist.all_reduce(torch.ones(100))

theirs = FOLDER / "theirs"
taken = 0
for link in list(Path("/proc/self/fd").iterdir()):
    name = str(link.readlink()) if link.is_symlink() else ""
    if name.endswith(".seg"):
        os.close(int(link.name))
        with theirs.open("wb") as file:
            os.dup2(file.fileno(), int(link.name))
        taken += 1
assert taken == (2 if "payloads" in ARGUMENTS else 1), taken

for _ in range(100):
    x = torch.ones(100)
    dist.all_reduce(x)
    assert x.sum() == 100
assert theirs.read_bytes() == b""
assert "closed by the program" in native.stats()["lost"], native.stats()
dist.destroy_process_group()
