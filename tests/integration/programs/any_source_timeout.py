"""Rank 0 receives from any source with a bound of its own, and nobody sends: `any_source_timeout.py`, under two ranks.

The group's own bound is far longer. Rank 1 stays until rank 0 is done.
"""

import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=60))
if dist.get_rank() == 0:
    work = dist.irecv(torch.zeros(4))
    began = time.monotonic()
    try:
        work.wait(timedelta(milliseconds=300))
    except RuntimeError:
        bounded = time.monotonic() - began < 30
        print(f"result raised, {'within' if bounded else 'after'} its bound", flush=True)
    else:
        print("result received", flush=True)
    dist.distributed_c10d._get_default_store().set("done", "")
else:
    dist.distributed_c10d._get_default_store().wait(["done"], timedelta(minutes=5))
