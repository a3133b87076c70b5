"""A DDP job under torch's profiler and its execution trace observer: DIRECTORY gets the files of each rank.

With `slow`, rank 1 computes longer in each step. With `alone` as well, there is no observer: torch numbers
no functions.
"""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

STEPS = 14
WAIT = 2


def main(folder: Path, *what: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    observer = None
    if "alone" not in what:
        observer = ExecutionTraceObserver().register_callback(str(folder / f"et_{rank}.json"))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=WAIT, warmup=0, active=STEPS - WAIT),
        on_trace_ready=lambda done: done.export_chrome_trace(str(folder / f"trace_{rank}.json.gz")),
        record_shapes=True,
        with_stack=True,
        execution_trace_observer=observer,
    ) as profiler:
        for _ in range(STEPS):
            step(model, optimizer, rank, slow="slow" in what)
            profiler.step()
    dist.destroy_process_group()


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, rank: int, *, slow: bool) -> None:
    optimizer.zero_grad()
    loss = model(torch.ones(8, 32)).sum()
    if slow and rank == 1:
        time.sleep(0.2)
    loss.backward()
    optimizer.step()
    dist.broadcast(torch.ones(3), src=1)
    dist.all_gather([torch.empty(2) for _ in range(2)], torch.ones(2))
    if rank == 0:
        dist.send(torch.ones(5), dst=1, tag=3)
    else:
        dist.recv(torch.empty(5), src=0, tag=3)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
