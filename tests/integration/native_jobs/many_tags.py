"""Rank 0 sends messages, each with another tag; what is known of tags is bounded, and both ends know the same."""

from __future__ import annotations

import rank
import torch
import torch.distributed as dist
from rank import RANK, native

MOST = 1024

rank.record()
rank.join()
x = torch.zeros(1)
for tag in (*range(MOST + 100), 500, 0, 500):
    dist.send(x, 1, tag=tag) if RANK == 0 else dist.recv(x, 0, tag=tag)
dist.barrier()
known = {tag: number for _, op, _, tag, number in native.sequences() if op}
last = [tag for _, op, _, tag, _ in native.sequences() if op][-3:]
stats = native.stats()
assert known.pop(-(1 << 31)) == 1, "the highest number of those that are forgotten"
assert len(known) == MOST and last == [MOST + 99, 0, 500], last
assert (known[500], known[0], known.get(100), known[101], known[MOST + 99]) == (3, 2, None, 1, 2)
assert (stats["events"], stats["collective"]) == (MOST + 104, MOST + 104)
dist.destroy_process_group()
