"""Two stages: the first tells the second what it sends, as a pickled object, and hears how much of it was of use."""

import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

assert sys.argv[1] == "2", "stages"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
for step in range(4):
    told: list[object] = [{"elements": 16 + step}]
    if rank == 0:
        dist.send_object_list(told, 1)
        dist.send(torch.randn(16 + step), 1)
        dist.recv_object_list(told, 1)
    else:
        dist.recv_object_list(told, 0)
        value = torch.empty(told[0]["elements"])  # type: ignore[index]
        dist.recv(value, 0)
        dist.send_object_list([{"elements": 8 + step}], 0)
    assert told[0] == {"elements": (8 if rank == 0 else 16) + step}
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).step()  # a step, as a program marks them
dist.destroy_process_group()
