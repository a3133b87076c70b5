"""Gives its optimizer the parameters for the time of each step alone, as DeepSpeed's ZeRO-3 does."""

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

dist.init_process_group("gloo")
torch.manual_seed(7)
parameter = torch.nn.Parameter(torch.ones(16))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(6):
    parameter.grad = torch.randn(16)
    dist.all_reduce(parameter.grad)
    optimizer.param_groups[0]["params"] = [parameter]
    optimizer.step()
    optimizer.param_groups[0]["params"] = []
dist.destroy_process_group()
