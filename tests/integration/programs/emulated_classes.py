"""Steps of one all_reduce each, where some ranks do something else, as the argument says:

odd: ranks off the first along both axes of dp=2,tp=2 gather, too.
askew: a group that lies along no axis. short: it ends early.
"""

import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
askew = dist.new_group([0, world - 1]) if sys.argv[1] == "askew" else None
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(2 if sys.argv[1] == "short" else 5):
    weight.grad = torch.ones(4)
    dist.all_reduce(weight.grad)
    if sys.argv[1] == "odd" and rank // 2 and rank % 2:
        dist.all_gather([torch.empty(4) for _ in range(world)], weight.detach())
    if askew is not None and rank in (0, world - 1):
        dist.all_reduce(weight.grad, group=askew)
    optimizer.step()
