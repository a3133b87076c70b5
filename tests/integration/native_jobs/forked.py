"""A rank forks: a plain child that issues a collective, and DataLoader workers. Neither writes the parent's log."""

from __future__ import annotations

import os

import rank
import torch
import torch.distributed as dist
from rank import native
from torch.utils.data import DataLoader

rank.record()
native.window(True, 0, 0)
rank.join()
dist.all_reduce(torch.ones(4))
before = native.stats()
assert len(rank.log_files_in_use()) == 2, "events and payloads are not both open in the parent"
child = os.fork()
if child == 0:
    native.append(7, b'{"kind": "from the child", "time_ns": 0}')
    native.begin_step(7, 0)
    ok = native.stats()["mode"] == 0 and native.stats()["events"] == 0 and native.in_flight() == []
    ok = ok and rank.log_files_in_use() == []
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
assert status == 0, "the child has its parent's log"
loaded = [batch.sum().item() for batch in DataLoader(torch.arange(8.0).unsqueeze(1), batch_size=4, num_workers=2)]
assert loaded == [6.0, 22.0]
assert native.stats() == before
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
