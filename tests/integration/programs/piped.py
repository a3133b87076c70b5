"""Two stages: what the first computes goes to the second, and a gradient comes back."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
for _ in range(4):
    value = torch.randn(16)
    if rank == 0:
        dist.send(value, 1)
        dist.recv(value, 1)
    else:
        dist.recv(value, 0)
        dist.send(value.tanh(), 0)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).step()  # a step, as a program marks them
    assert value.abs().sum() > 0
dist.destroy_process_group()
