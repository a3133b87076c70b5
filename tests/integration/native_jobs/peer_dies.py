"""Rank 1 dies; rank 0's collectives fail as they would have, one issued before and one after, and are recorded so."""

from __future__ import annotations

import os

import rank
import torch
import torch.distributed as dist
from rank import RANK

rank.record()
rank.join()
dist.all_reduce(torch.ones(4))
if RANK == 1:
    dist.recv(torch.ones(1), 0)
    os._exit(3)
x = torch.ones(4)
work = dist.all_reduce(x, async_op=True)
receive = dist.irecv(torch.zeros(4), 1)
dist.send(torch.ones(1), 1)
errors = []
for pending in (work, receive):
    try:
        pending.wait()
    except RuntimeError as error:
        errors.append(type(error).__name__)
try:
    dist.barrier()
except RuntimeError as error:
    errors.append(type(error).__name__)
try:
    dist.all_reduce(torch.ones(4), op=dist.ReduceOp.AVG)
except RuntimeError as error:
    errors.append(type(error).__name__)
assert len(errors) == 4, errors
os._exit(0)
