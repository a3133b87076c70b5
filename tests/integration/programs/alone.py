"""One process: `python alone.py`, with a process group where a file for its rendezvous is given."""

import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

if len(sys.argv) > 1:
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(8, 4)).square().sum().backward()
    if dist.is_initialized():
        dist.all_reduce(model.weight.grad)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)  # gloo's threads must not be the last to hold a tensor while Python ends
print(f"result {model.weight.sum().item():.9g}")
if dist.is_initialized():
    dist.destroy_process_group()
