"""A second thread sends large tensors while the first one trains, until FOLDER/last is there: `two_threads.py FOLDER`.

While FOLDER/hold is there, rank 1 keeps a descriptor of what the kernel tells of its launcher.
"""

import contextlib
import os
import queue
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

LARGE = 32 << 20  # bytes that are hashed before they are sent

folder = Path(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
beside = dist.new_group()
steps: "queue.Queue[int]" = queue.Queue(maxsize=2)


def send() -> None:
    large = torch.zeros(LARGE // 4)
    while (step := steps.get()) >= 0:
        large.fill_(step)
        if rank == 1:
            dist.send(large, 0, group=beside)
        else:
            dist.recv(large, 1, group=beside)


thread = threading.Thread(target=send)
thread.start()
torch.manual_seed(rank)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step, told = 0, torch.zeros(1)
with contextlib.ExitStack() as held:
    while not told.item():
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        step += 1
        steps.put(step)
        if rank == 1 and (folder / "hold").exists():
            held.enter_context(Path(f"/proc/{os.getppid()}/stat").open())
            (folder / "hold").unlink()
        if rank == 1 and (folder / "close").exists():
            held.close()
            (folder / "close").unlink()
        told.fill_(float(rank == 0 and (folder / "last").exists()))
        dist.all_reduce(told)
steps.put(-1)
thread.join()
dist.destroy_process_group()
