"""The first process starts rank 1 and is rank 0 itself, as with Lightning's own launcher.

Argument: which rank communicates first, by itself. If it is 1, it ends then, and rank 0 raises.
"""

from __future__ import annotations

import os
import subprocess
import sys

import torch
import torch.distributed as dist

SIZE = 2


def main(first: int) -> None:
    rank = int(os.environ.get("RANK", "0"))
    port = int(os.environ.get("MASTER_PORT", "0"))
    store = dist.TCPStore("localhost", port, is_master=rank == 0)
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(SIZE)}
    os.environ["RANK"] = str(rank)
    if rank == 0:
        other = subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": "1"})
    dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE)
    total = torch.ones(1)
    alone = dist.new_group([rank], use_local_synchronization=True)
    if rank == first:
        dist.all_reduce(total, group=alone)
        store.set("begun", "yes")
    else:
        store.wait(["begun"])
    if first == 1:
        if rank == 0:
            raise RuntimeError("rank 0 fails")
        return
    dist.all_reduce(total)
    assert total.item() == SIZE
    dist.destroy_process_group()
    if rank == 0:
        assert other.wait() == 0


main(int(sys.argv[1]))
