"""Three ranks that hang in step 5. `mismatch`: rank 1 calls broadcast where the others average gradients. Else they are
a pipeline. `sleeps`: rank 1 stands still, and both of its neighbours wait for it; `leaves_out`: rank 1 leaves out a
send, and waits for the answer of rank 2, which waits for what was left out.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch.nn.parallel import DistributedDataParallel

STEPS, WRONG = 50, 5
FOREVER_S = 1000


def main(how: str) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    model = torch.nn.Linear(4, 4)
    parallel = DistributedDataParallel(model) if how == "mismatch" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        is_wrong = (dist.get_rank(), step) == (1, WRONG)
        if how != "mismatch":
            pass_on(how if is_wrong else "")
        elif is_wrong:
            dist.broadcast(torch.ones(20), 0)
        parallel(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        time.sleep(0.05)
    dist.destroy_process_group()


def pass_on(how: str) -> None:
    """Forward from rank 0 to 2, then backward."""
    rank, data = dist.get_rank(), torch.ones(4)
    if rank > 0:
        dist.recv(data, rank - 1)
    if how == "sleeps":
        time.sleep(FOREVER_S)
    if rank < 2:
        if how != "leaves_out":
            dist.send(data, rank + 1)
        dist.recv(data, rank + 1)
    if rank > 0:
        dist.send(data, rank - 1)


main(sys.argv[1])
