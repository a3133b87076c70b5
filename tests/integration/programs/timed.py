"""Two ranks that compute with what clocks tell them: seeds, a time and a name of the run that are agreed on, how long
each step took, and a decision by the time that is left. Its argument: the number of steps."""

import random
import sys
import time
import uuid
from datetime import UTC, datetime

STARTED = time.time()  # before torch

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import uncompiled  # noqa: E402, F401
from prismdbg_hooks import restore_point  # noqa: E402

STEPS, BOUND_S = int(sys.argv[1]), 3600.0


class Timer:
    clock = time.perf_counter  # an attribute of the class, which a function would be a method of

    def __init__(self) -> None:
        self.began = self.clock()

    def seconds(self) -> float:
        return self.clock() - self.began


random.seed(time.time_ns())
torch.manual_seed(int(STARTED * 1e6) % (1 << 31))
dist.init_process_group("gloo")
rank = dist.get_rank()
began = torch.tensor([STARTED], dtype=torch.double)
dist.all_reduce(began, op=dist.ReduceOp.MIN)
names = [f"{datetime.now():%Y%m%d-%H%M%S.%f}_{uuid.uuid4()}"]
dist.broadcast_object_list(names, src=1)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
start = restore_point(model=model, optimizer=optimizer) or 0
for step in range(start, STEPS):
    timer = Timer()
    data = torch.randn(4, 8) * random.random()
    model(data).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    now, utc = datetime.now(UTC), datetime.utcnow()
    times = timer.seconds(), time.monotonic(), float(time.strftime("%S")), now.timestamp(), utc.microsecond
    took = torch.tensor(times, dtype=torch.double)
    dist.all_gather([torch.empty_like(took) for _ in range(dist.get_world_size())], took)
    if time.time() - STARTED < BOUND_S:
        dist.barrier()
    # One write, for both ranks have the same output.
    print(f"rank {rank} step {step} took {took[0].item()!r} now {now} in {names[0]}\n", end="", flush=True)
dist.destroy_process_group()
