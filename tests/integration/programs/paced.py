"""`paced.py ddp|pipeline STEPS`: two ranks, a few layers; prints the norm of its parameters at the end."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WIDTH, MICROBATCHES = 64, 4
Sent = list[tuple[torch.Tensor, dist.Work]]


def layers(count: int) -> torch.nn.Sequential:
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(count)))


def data_parallel(steps: int) -> torch.nn.Module:
    """Several buckets, that overlap the backward pass."""
    model = DistributedDataParallel(layers(6), bucket_cap_mb=0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(8, WIDTH)).square().mean()
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total)
        optimizer.step()
    return model


def pipeline(steps: int) -> torch.nn.Module:
    """1F1B by hand on two stages: the first is one microbatch ahead, and nobody waits for a send before the end."""
    rank = dist.get_rank()
    model = layers(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        sent: Sent = []
        waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
        for number in range(MICROBATCHES + 1 - rank):
            if number < MICROBATCHES:
                waiting.append(forward(model, rank, sent))
            if rank == 1 or number:
                backward(*waiting.pop(0), rank, sent)
        for _, work in sent:
            work.wait()
        optimizer.step()
    return model


def send(tensor: torch.Tensor, to: int, sent: Sent) -> None:
    work = dist.isend(tensor, to)
    assert work is not None
    sent.append((tensor, work))


def forward(model: torch.nn.Module, rank: int, sent: Sent) -> tuple[torch.Tensor, torch.Tensor]:
    given = torch.ones(8, WIDTH, requires_grad=rank == 1)
    if rank == 1:
        with torch.no_grad():
            dist.recv(given, 0)
    made = model(given)
    if rank == 0:
        send(made.detach(), 1, sent)
    return given, made


def backward(given: torch.Tensor, made: torch.Tensor, rank: int, sent: Sent) -> None:
    if rank == 0:
        gradient = torch.empty_like(made)
        dist.recv(gradient, 1)
        made.backward(gradient)
    else:
        made.square().mean().backward()
        assert given.grad is not None
        send(given.grad, 0, sent)


def main() -> None:
    torch.manual_seed(7)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    steps = int(sys.argv[2])
    if sys.argv[1] == "pipeline":
        import uncompiled  # noqa: F401
    model = data_parallel(steps) if sys.argv[1] == "ddp" else pipeline(steps)
    print(f"norm {sum(float(p.detach().norm()) for p in model.parameters()):.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
