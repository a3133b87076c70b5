"""A distributed checkpoint of a model that is sharded over "dp": what it wrote and how long that took, as JSON.

emulated_checkpoint.py PP,DP,TP FOLDER
"""

import json
import sys
import time
from pathlib import Path

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", tuple(map(int, sys.argv[1].split(","))), mesh_dim_names=("pp", "dp", "tp"))
model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
fully_shard(model, mesh=mesh["dp"])
began = time.perf_counter()
dcp.save({"model": model.state_dict(), "step": 3}, checkpoint_id=sys.argv[2])
spent = time.perf_counter() - began
files = sorted(path.name for path in Path(sys.argv[2]).glob(f"__{dist.get_rank()}_*"))
print(json.dumps({"rank": dist.get_rank(), "seconds": spent, "files": files}), flush=True)
dist.destroy_process_group()
