"""Two ranks train a small network with dropout under DDP, an LR schedule and data drawn from torch's generator; it goes
on from where `restore_point` says."""

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from prismdbg_hooks import restore_point
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--unregistered", default="")
parser.add_argument("--bare", action="store_true", help="register the module that DDP wraps, not DDP")
parser.add_argument("--normalized", action="store_true", help="with buffers, which DDP broadcasts before it is called")
parser.add_argument("--evaluate-every", type=int, default=0, help="steps: after them all ranks agree on a mean")
parser.add_argument("--ahead", action="store_true", help="draw the data of the next step at the end of each")
parser.add_argument(
    "--weights-mib", type=int, default=0, help="received from rank 0, whole and in four parts, after what it tells"
)
parser.add_argument("--ring", action="store_true", help="pass data on to the next rank, and add that of the one before")
parser.add_argument("--raise-at", type=int, default=-1)
parser.add_argument("--nan-data-at", type=int, default=-1, help="a step: the last rank's data contain NaN in it")
parser.add_argument("--nan-at", type=int, default=-1, help="rank 1 logs NaN in this step, and goes on")
parser.add_argument("--rest-s", type=float, default=0.0, help="after each step: what is tested meanwhile has the CPUs")
parser.add_argument(
    "--coarse", default="", help="a file: while it is there, the program rounds as other hardware might"
)
arguments = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(7 + rank)
told = [{"width": 64, "rate": 1e-2} if rank == 0 else None]
dist.broadcast_object_list(told)
width = told[0]["width"]
if arguments.weights_mib:
    weights = torch.full((arguments.weights_mib << 18,), float(rank == 0))
    for part in (weights, *weights.chunk(4)):
        dist.broadcast(part, 0)
normalized = [torch.nn.BatchNorm1d(width)] if arguments.normalized else []
layers = [torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Dropout(0.1)] * 3
model = DistributedDataParallel(
    torch.nn.Sequential(*normalized, *layers, *(torch.nn.Linear(width, width) for _ in range(4))), bucket_cap_mb=0.03
)
optimizer = torch.optim.AdamW(model.parameters(), lr=told[0]["rate"])
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.8)


def with_the_one_before(data: torch.Tensor, step: int) -> torch.Tensor:
    """Half of it by a batch of calls, half of it by single ones with tags."""
    following, before = (rank + 1) % dist.get_world_size(), (rank - 1) % dist.get_world_size()
    (first, second), (one, other) = data.chunk(2), torch.empty_like(data).chunk(2)
    pair = [dist.P2POp(dist.isend, first, following), dist.P2POp(dist.irecv, one, before)]
    works = dist.batch_isend_irecv(pair)
    works += [dist.isend(second, following, tag=step % 2), dist.irecv(other, before, tag=step % 2)]
    for work in works:
        work.wait()
    return data + torch.cat([one, other])


def evaluate() -> None:
    model.eval()
    with torch.no_grad():
        mean = model(torch.randn(8, width)).mean()
    dist.all_reduce(mean)
    model.train()


registered = {"model": model.module if arguments.bare else model, "optimizer": optimizer, "schedule": schedule}
registered.pop(arguments.unregistered, None)
data = torch.randn(8, width) if arguments.ahead else None
start = restore_point(**registered) or 0

for step in range(start, arguments.steps):
    data = data if arguments.ahead else torch.randn(8, width)
    if arguments.coarse and Path(arguments.coarse).exists():
        data *= 1 + 2**-20
    if step == arguments.nan_data_at and rank == dist.get_world_size() - 1:
        data[0, 0] = float("nan")
    output = model(data)  # what is sent before the first forward pass belongs to the step before
    loss = (output - (with_the_one_before(data, step) if arguments.ring else data).flip(0)).square().mean()
    if step == arguments.raise_at and rank == 1:
        raise ValueError(f"the loss is {loss.item():.6f}")
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    total = loss.detach().clone()
    if step == arguments.nan_at and rank == 1:
        total.fill_(float("nan"))
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step} loss {total.item():.6f}", flush=True)
    if arguments.evaluate_every and (step + 1) % arguments.evaluate_every == 0:
        evaluate()
    if arguments.ahead:
        data = torch.randn(8, width)
    if arguments.rest_s:
        time.sleep(arguments.rest_s)
checksum = sum(p.double().sum().item() for p in model.parameters())
print(f"rank {rank} parameters {checksum:.12f}", file=sys.stderr)
dist.destroy_process_group()
