"""Of the time that an all-reduce takes, how much processor time of a rank: BYTES ROUNDS FILE, two ranks, pinned."""

import json
import os
import sys
import time
from pathlib import Path
from statistics import median

allowed = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {allowed[int(os.environ["LOCAL_RANK"]) % len(allowed)]})

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")
tensor = torch.ones(int(sys.argv[1]) // 4)
shares = []
for _ in range(int(sys.argv[2])):
    dist.barrier()
    began, used = time.perf_counter(), time.process_time()
    dist.all_reduce(tensor)
    shares.append((time.process_time() - used) / (time.perf_counter() - began))
if dist.get_rank() == 0:
    Path(sys.argv[3]).write_text(json.dumps(median(shares)))
dist.barrier()
dist.destroy_process_group()
