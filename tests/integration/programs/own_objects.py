"""Two ranks that tell each other objects. Those of rank 0 have as many characters as OWN says (7): they differ in the
next run, as a time, a PID or a host's name does.

OWN=7 torchrun --nproc-per-node 2 own_objects.py
"""

import os
from typing import Any

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    own = "x" * int(os.environ.get("OWN", "7")) if rank == 0 else "of rank 1"
    told: list[Any] = [own]
    dist.broadcast_object_list(told, 0)
    part: list[Any] = [None]
    dist.scatter_object_list(part, [own, own * 2] if rank == 0 else None, 0)
    if rank == 0:
        dist.send_object_list([own, 1], 1)
    else:
        dist.recv_object_list([None, None], 0)
    everyone: list[Any] = [None, None]
    dist.all_gather_object(everyone, own)
    gathered: list[Any] = [None, None]
    dist.gather_object(own, gathered if rank == 1 else None, 1)
    dist.all_reduce(torch.ones(1))
    print(f"\nresult {rank} {len(told[0])} {len(part[0])} {everyone[1]}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
