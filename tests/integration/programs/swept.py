"""A model of some layers over a mesh of dp and tp: the more ranks share its layers, the less each holds.

python swept.py TP LAYERS; tp=4 is not what it can do.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch.distributed.device_mesh import init_device_mesh

tp, layers = int(sys.argv[1]), int(sys.argv[2])
if tp == 4:
    raise ValueError("no layer can be shared by 4 ranks")
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size() // tp, tp), mesh_dim_names=("dp", "tp"))
torch.manual_seed(dist.get_rank())
weights = [torch.randn(64, 4096 // tp) for _ in range(layers)]
for _ in range(6):
    value = torch.randn(8, 64)
    for weight in weights:
        value = (value @ weight).tanh() @ weight.T
        dist.all_reduce(value, group=mesh["tp"].get_group())
    for weight in weights:
        dist.all_reduce(weight, group=mesh["dp"].get_group())
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).step()  # a step, as a program marks them
dist.destroy_process_group()
