"""Three steps of a mixture of experts, one expert a rank. Each rank says in a line of JSON which tokens went where.

How many tokens each rank sends to each is exchanged first, as counts; then the tokens, and back.
"""

import json
from typing import Any

import torch
import torch.distributed as dist
import uncompiled  # noqa: F401
from torch import Tensor, nn

TOKENS, WIDTH, STEPS = 64, 16, 3


class Exchange(torch.autograd.Function):
    """All-to-all of rows; `taken` and `given` rows from and to each rank."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, taken: list[int], given: list[int]) -> Tensor:
        ctx.taken, ctx.given = taken, given
        return exchanged(rows, taken, given)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return exchanged(gradient.contiguous(), ctx.given, ctx.taken), None, None


def exchanged(rows: Tensor, taken: list[int], given: list[int]) -> Tensor:
    out = rows.new_full((sum(taken), rows.shape[1]), float("nan"))  # what nobody fills shows
    dist.all_to_all_single(out, rows, taken, given)
    return out


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
router = nn.Linear(WIDTH, world)
torch.manual_seed(1 + rank)
expert = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
optimizer = torch.optim.SGD([*router.parameters(), *expert.parameters()], lr=0.5)
for step in range(STEPS):
    tokens = torch.randn(TOKENS, WIDTH)
    weight, target = router(tokens).softmax(-1).max(-1)
    order = target.argsort(stable=True)
    given = torch.bincount(target, minlength=world)
    taken = torch.full((world,), -1)
    dist.all_to_all_single(taken, given)
    inputs = Exchange.apply(tokens[order], taken.tolist(), given.tolist())
    outputs = Exchange.apply(expert(inputs), given.tolist(), taken.tolist())
    loss = ((outputs * weight[order, None] - tokens[order]) ** 2).mean()
    loss.backward()
    for parameter in router.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad()
    said = {
        "rank": rank,
        "step": step,
        "given": given.tolist(),
        "taken": taken.tolist(),
        "finite": bool(inputs.isfinite().all() and outputs.isfinite().all() and router.weight.isfinite().all()),
        "loss": loss.item(),
    }
    print(json.dumps(said) + "\n", end="", flush=True)  # in one piece: four ranks write into one stream
dist.destroy_process_group()
