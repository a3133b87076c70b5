"""Two steps on a device mesh of four replicas of two parts."""

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
weight = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(2):
    weight.grad = torch.ones(4)
    for axis in ("dp", "tp"):
        dist.all_reduce(weight.grad, group=mesh[axis].get_group())
    optimizer.step()
