"""A program that begins without standard error, or closes it, and opens a file that gets its number."""

from __future__ import annotations

import os
import sys

data = os.open(f"{sys.argv[1]}/data", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
if sys.argv[4] == "never":
    os.dup2(data, 2)
    sys.__stderr__ = None  # type: ignore[assignment, misc]  # as Python itself has it then

import rank  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from rank import FOLDER, RUN, native  # noqa: E402

if sys.argv[4] == "closed":
    os.dup2(data, 2)
rank.record()
rank.join()
native.close_log()
for path in FOLDER.glob("events.*.seg"):
    path.unlink()
native.append(7, b'{"kind": "parked", "time_ns": 1}')
native.reopen_log()
dist.all_reduce(torch.ones(4))
assert "No such file" in native.stats()["lost"]
native.close_log()  # waits for what is written behind it
assert "prismdbg" not in (RUN / "data").read_text()
dist.destroy_process_group()
