"""A mixture of experts: how many tokens go where is exchanged first, as integers, and shapes all that follows.

emulated_moe.py STEPS: what the router reads is another on each rank, so what one sends another receives.
"""

import sys
from typing import Any

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401

STEPS, WIDTH, TOKENS = int(sys.argv[1]), 16, 96


class Exchange(torch.autograd.Function):
    """Rows to whom they belong, and their gradients back."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, received: list[int], sent: list[int]) -> torch.Tensor:
        ctx.received, ctx.sent = received, sent
        out = rows.new_empty((sum(received), rows.shape[1]))
        dist.all_to_all_single(out, rows.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        out = gradient.new_empty((sum(ctx.sent), gradient.shape[1]))
        dist.all_to_all_single(out, gradient.contiguous(), ctx.sent, ctx.received)
        return out, None, None


def layer(x: torch.Tensor, router: torch.nn.Linear, expert: torch.nn.Linear) -> torch.Tensor:
    score, choice = router(x).softmax(-1).max(-1)
    order = choice.argsort(stable=True)
    sent = torch.bincount(choice, minlength=WORLD)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    there, back = received.tolist(), sent.tolist()
    rows = Exchange.apply(x[order], there, back)
    rows = Exchange.apply(expert(rows).relu(), back, there)
    return x + torch.zeros_like(x).index_copy(0, order, rows) * score[:, None]


dist.init_process_group("gloo")
RANK, WORLD = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
routers = torch.nn.ModuleList([torch.nn.Linear(WIDTH, WORLD) for _ in range(2)])
torch.manual_seed(100 + RANK)
experts = torch.nn.ModuleList([torch.nn.Linear(WIDTH, WIDTH) for _ in range(2)])
optimizer = torch.optim.SGD([*routers.parameters(), *experts.parameters()], lr=0.5)
for _ in range(STEPS):
    x = torch.randn(TOKENS, WIDTH) + torch.randn(WIDTH)
    for router, expert in zip(routers, experts, strict=True):
        x = layer(x, router, expert)
    optimizer.zero_grad()
    x.square().mean().backward()
    for parameter in routers.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= WORLD
    optimizer.step()
print(f"rank {RANK} {x.square().mean().item():.6f}", flush=True)
dist.destroy_process_group()
