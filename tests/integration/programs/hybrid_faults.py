"""Two ranks of a mesh dp=2,tp=2 run at once, and something goes wrong, or is lacking, on one of them."""

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

HOW = sys.argv[1]
dist.init_process_group("gloo")
rank, first = dist.get_rank(), dist.get_rank() // 2 * 2
groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
tp = groups[rank // 2]
weight = torch.ones(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)


def step() -> None:
    (weight * 2).sum().backward()
    dist.all_reduce(weight.grad, group=tp)
    optimizer.step()
    optimizer.zero_grad()


step()
if rank == 3 and HOW == "is killed":
    os.kill(os.getpid(), signal.SIGKILL)
elif rank == 3 and HOW == "raises":
    raise ValueError("batch 7 is broken")
elif rank == 3 and HOW == "leaves":
    os._exit(0)
elif rank == 3 and HOW == "waits for a message":
    dist.recv(torch.zeros(4), src=2, group=tp)
elif rank == 3 and HOW == "sleeps":
    threading.Event().wait()
elif HOW == "receives from any":
    dist.recv(torch.zeros(4))
elif HOW == "lacks what a virtual one knows":
    told = [f"of {rank}"]
    dist.broadcast_object_list(told, src=0)  # over the world: the first of both asks for it
    said = [None]
    if rank == 1:
        dist.send_object_list([f"by {rank}"], dst=3)
    elif rank == 3:
        dist.recv_object_list(said, src=1)
    os.write(1, f"{rank} {told[0]} {said[0]}\n".encode())
elif HOW == "lacks its partner's key" and first == 2:
    store = dist.distributed_c10d._get_default_store()
    if rank == 3:
        store.set("settings", "of 3")
    os.write(1, f"{rank} {store.get('settings').decode()}\n".encode())
step()
