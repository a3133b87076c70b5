"""One rank whose log is closed, as for a checkpoint, and gone when it is to go on. The training never notices."""

from __future__ import annotations

import rank
import torch
import torch.distributed as dist
from rank import FOLDER, native

rank.record()
rank.join()
dist.all_reduce(torch.ones(4))
native.close_log()
for path in FOLDER.glob("events.*.seg"):
    path.unlink()
native.append(7, b'{"kind": "parked", "time_ns": 1}')
native.reopen_log()
total = torch.ones(4)
dist.all_reduce(total)
assert total.tolist() == [1.0] * 4
assert "No such file" in native.stats()["lost"]
dist.destroy_process_group()
