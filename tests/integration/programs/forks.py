"""A process that forks in the midst of its training; the child makes a step, too, and ends through its exit hooks."""

import atexit
import os
import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401


def step(weight: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    weight.grad = torch.ones(1)
    dist.all_reduce(weight.grad)
    optimizer.step()


dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
weight = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1.0)
step(weight, optimizer)
child = os.fork()
if child == 0:
    optimizer.step()
    print(f"child {weight.item()}", flush=True)
    atexit._run_exitfuncs()  # as sys.exit() does, which would wait for ever for threads that only the parent has
    os._exit(7)
print(f"child ended {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)
step(weight, optimizer)
print(f"result {weight.item()}", flush=True)
dist.destroy_process_group()
