"""A transformer block's MLP over a mesh of stages, replicas and parts, with its groups made as Megatron makes them.

What each rank computes is printed as a line of JSON: its losses, and a hash of its parameters, bit for bit. `same`: all
replicas have the same batches.
"""

import hashlib
import json
import os
import sys

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

PP, DP, TP, STEPS = (int(size) for size in sys.argv[1:5])
SAME = "same" in sys.argv[5:]
WIDTH, BATCH, MICROBATCHES = 16, 4, 4

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
stage, replica, part = rank // (DP * TP), rank // TP % DP, rank % TP


def number(at_stage: int, at_replica: int, at_part: int) -> int:
    return (at_stage * DP + at_replica) * TP + at_part


def group_of(groups: list[list[int]]) -> dist.ProcessGroup:
    """As Megatron does: every rank makes every group."""
    mine = None
    for ranks in groups:
        made = dist.new_group(ranks)
        mine = made if rank in ranks else mine
    assert mine is not None
    return mine


tp = group_of([[number(p, d, t) for t in range(TP)] for p in range(PP) for d in range(DP)])
dp = group_of([[number(p, d, t) for d in range(DP)] for p in range(PP) for t in range(TP)])
pp = group_of([[number(p, d, t) for p in range(PP)] for d in range(DP) for t in range(TP)])
model_parallel = group_of([[number(p, d, t) for p in range(PP) for t in range(TP)] for d in range(DP)])


class Copied(torch.autograd.Function):
    @staticmethod
    def forward(_, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(_, grad: torch.Tensor) -> torch.Tensor:
        grad = grad.clone()
        dist.all_reduce(grad, group=tp)
        return grad


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(_, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        dist.all_reduce(x, group=tp)
        return x

    @staticmethod
    def backward(_, grad: torch.Tensor) -> torch.Tensor:
        return grad


torch.manual_seed(100 + stage * TP + part)  # parts and stages differ, replicas do not
first = torch.randn(WIDTH, 2 * WIDTH // TP, requires_grad=True)
second = torch.randn(2 * WIDTH // TP, WIDTH, requires_grad=True)
optimizer = torch.optim.Adam([first, second], lr=0.01)
told = [{"seed": 7, "by": rank}]
dist.broadcast_object_list(told, src=number(0, replica, 0), group=model_parallel)
words = [None] * TP
dist.all_gather_object(words, f"part {part}", group=tp)


def forward(x: torch.Tensor) -> torch.Tensor:
    return x + Summed.apply(torch.tanh(Copied.apply(x) @ first) @ second)


losses = []
for step in range(STEPS):
    seen, loss = [], torch.zeros(())
    batches = torch.Generator().manual_seed(1000 * step + (0 if SAME else replica))
    for _ in range(MICROBATCHES):
        x = torch.randn(BATCH, WIDTH, generator=batches)
        if stage:
            dist.recv(x, src=number(stage - 1, replica, part), group=pp)
        x.requires_grad_()
        y = forward(x)
        seen.append((x, y))
        if stage < PP - 1:
            dist.isend(y.detach(), dst=number(stage + 1, replica, part), group=pp).wait()
    for x, y in seen:
        if stage == PP - 1:
            own = y.square().mean() / MICROBATCHES
            own.backward()
            loss += own.detach()
        else:
            grad = torch.empty_like(y)
            dist.recv(grad, src=number(stage + 1, replica, part), group=pp)
            y.backward(grad)
        if stage:
            dist.send(x.grad, dst=number(stage - 1, replica, part), group=pp)
    works = [dist.all_reduce(p.grad, group=dp, async_op=True) for p in (first, second)]
    for work in works:
        work.wait()
    for p in (first, second):
        p.grad /= DP
    norm = sum(p.grad.square().sum() for p in (first, second))
    dist.all_reduce(norm, group=model_parallel)
    dist.all_reduce(loss)  # over the world
    for p in (first, second):
        p.grad /= max(1.0, norm.sqrt().item())
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item().hex())
dist.barrier()
bits = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in (first, second))).hexdigest()[:16]
said = {"rank": rank, "losses": losses, "parameters": bits, "told": told[0]["by"], "parts": words}
os.write(1, (json.dumps(said) + "\n").encode())  # in one piece: several ranks write
dist.destroy_process_group()
