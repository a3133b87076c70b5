"""How long torch.distributed, a mesh and all groups of its axes take to come up, and what they hold: a line of JSON."""

import json
import os
import time
from pathlib import Path

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


began, before = time.perf_counter(), resident_bytes()
dist.init_process_group("gloo")
world = dist.get_world_size()
sizes = (16, world // 128, 8) if world >= 128 else (1, 1, world)
mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("pp", "dp", "tp"))
stages, replicas, parts = sizes
for stage in range(stages):  # as Megatron does: every rank makes every group
    for replica in range(replicas):
        dist.new_group([(stage * replicas + replica) * parts + part for part in range(parts)])
    for part in range(parts):
        dist.new_group([(stage * replicas + replica) * parts + part for replica in range(replicas)])
dist.new_group(range(world))
dist.barrier()
spent = {"seconds": time.perf_counter() - began, "bytes": resident_bytes() - before, "total": resident_bytes()}
print(json.dumps(spent), flush=True)
