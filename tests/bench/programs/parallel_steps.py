"""Trains ranks in one kind of parallelism, a processor and one thread each, and says how long each step took.

parallel_steps.py KIND STEPS FOLDER; KIND is one of those below. FOLDER gets <rank>.json, every step in it. In kinds
that end in -asleep a block does not compute but sleeps, so that ranks may share processors: only their communication
uses them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
allowed = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {allowed[rank % len(allowed)]})

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.pipelining import PipelineStage, Schedule1F1B  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

WIDTH, LAYERS, ROWS, TOKENS = 512, 8, 128, 512
ONE_BUCKET_MB, SMALL_BUCKET_MB = 1024, 2
ASLEEP_WIDTH, ASLEEP_ROWS, ASLEEP_S = (
    256,
    1024,
    0.005,
)  # of a block's forward pass; its backward pass takes twice as long
Step = Callable[[], Any]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


def stack(layers: int = LAYERS) -> nn.Sequential:
    return nn.Sequential(*[Block() for _ in range(layers)])


def plain(model: nn.Module) -> Step:
    return lambda: model(torch.randn(ROWS, WIDTH)).square().mean().backward()


def ddp(model: nn.Module, bucket_mb: int) -> tuple[nn.Module, Step]:
    whole = DistributedDataParallel(model, bucket_cap_mb=bucket_mb)
    return whole, plain(whole)


def fsdp2(model: nn.Sequential, step: Callable[[nn.Module], Step] = plain) -> tuple[nn.Module, Step]:
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, step(model)


def tensor_parallel(model: nn.Sequential) -> tuple[nn.Module, Step]:
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model, plain(model)


def pipeline(microbatches: int) -> tuple[nn.Module, Step]:
    half = stack(LAYERS // 2)
    stage = PipelineStage(half, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, microbatches, loss_fn=lambda out, _: out.square().mean())
    batch = ROWS * 2

    def step() -> None:
        if rank == 0:
            schedule.step(torch.randn(batch, WIDTH))
        else:
            schedule.step(target=torch.zeros(batch, WIDTH), losses=[])

    return half, step


class Sleep(torch.autograd.Function):
    """Depends on a block's weights, and gives each a gradient, as a computation would."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*weights)
        time.sleep(ASLEEP_S)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        time.sleep(2 * ASLEEP_S)
        return gradient.clone(), *map(torch.zeros_like, ctx.saved_tensors)


class ReducedBackward(torch.autograd.Function):
    """What all ranks of a tensor-parallel group read: its gradient is the sum of theirs."""

    @staticmethod
    def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        total = gradient.clone()
        dist.all_reduce(total)
        return total


class ReducedForward(torch.autograd.Function):
    """What each of them has computed a part of."""

    @staticmethod
    def forward(_ctx: Any, x: torch.Tensor) -> torch.Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        return gradient.clone()


class AsleepBlock(nn.Module):
    def __init__(self, parts: int = 1) -> None:
        super().__init__()
        self.parts = parts
        inner = 2 * ASLEEP_WIDTH // parts
        self.up = nn.Parameter(torch.zeros(inner, ASLEEP_WIDTH))
        self.down = nn.Parameter(torch.zeros(ASLEEP_WIDTH, inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.parts == 1:
            slept: torch.Tensor = Sleep.apply(x, self.up, self.down)
            return slept
        reduced: torch.Tensor = ReducedForward.apply(Sleep.apply(ReducedBackward.apply(x), self.up, self.down))
        return reduced


def asleep(layers: int = LAYERS, parts: int = 1) -> nn.Sequential:
    return nn.Sequential(*[AsleepBlock(parts) for _ in range(layers)])


def asleep_step(model: nn.Module) -> Step:
    return lambda: model(torch.ones(ASLEEP_ROWS, ASLEEP_WIDTH, requires_grad=True)).mean().backward()


def asleep_ddp() -> tuple[nn.Module, Step]:
    model = DistributedDataParallel(asleep(), bucket_cap_mb=ONE_BUCKET_MB)
    return model, asleep_step(model)


def asleep_tensor_parallel() -> tuple[nn.Module, Step]:
    model = asleep(parts=world)
    return model, asleep_step(model)


def asleep_pipeline(microbatches: int) -> tuple[nn.Module, Step]:
    part = asleep(LAYERS // world)
    stage = PipelineStage(part, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, microbatches, loss_fn=lambda out, _: out.mean())
    whole = ASLEEP_ROWS * 2

    def step() -> None:
        if rank == 0:
            schedule.step(torch.ones(whole, ASLEEP_WIDTH))
        elif rank < world - 1:
            schedule.step()
        else:
            schedule.step(target=torch.zeros(whole, ASLEEP_WIDTH), losses=[])

    return part, step


class Exchange(torch.autograd.Function):
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


class Experts(nn.Module):
    """Half of the tokens, chosen at random, go to the other rank's expert and back."""

    def __init__(self) -> None:
        super().__init__()
        self.expert = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        choice = torch.randint(2, (len(x),))
        order = choice.argsort(stable=True)
        sent = torch.bincount(choice, minlength=2)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        there, back = received.tolist(), sent.tolist()
        rows = Exchange.apply(self.expert(Exchange.apply(x[order], there, back)), back, there)
        return x + torch.zeros_like(x).index_copy(0, order, rows)


def experts() -> tuple[nn.Module, Step]:
    model = nn.Sequential(*[Experts() for _ in range(LAYERS // 2)])
    return model, lambda: model(torch.randn(TOKENS, WIDTH)).square().mean().backward()


KINDS: dict[str, Callable[[], tuple[nn.Module, Step]]] = {
    "ddp": lambda: ddp(stack(), ONE_BUCKET_MB),
    "ddp-overlap": lambda: ddp(stack(), SMALL_BUCKET_MB),
    "fsdp2": lambda: fsdp2(stack()),
    "tp": lambda: tensor_parallel(stack()),
    "pp-4": lambda: pipeline(4),
    "pp-8": lambda: pipeline(8),
    "moe": experts,
    "ddp-asleep": asleep_ddp,
    "fsdp2-asleep": lambda: fsdp2(asleep(), asleep_step),
    "tp-asleep": asleep_tensor_parallel,
    "pp-asleep": lambda: asleep_pipeline(4),
}


def main() -> None:
    kind, steps, out = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(100 if kind != "moe" else 100 + rank)
    model, run = KINDS[kind]()
    # Asleep: its step marks the end of an iteration, and computes nothing.
    weights = [nn.Parameter(torch.zeros(1))] if kind.endswith("-asleep") else model.parameters()
    optimizer = torch.optim.SGD(weights, lr=1e-4)
    taken: list[tuple[str, float, float]] = []
    for _ in range(steps):
        began, used = time.perf_counter(), time.process_time()
        run()
        optimizer.step()
        model.zero_grad()
        taken.append(("", time.perf_counter() - began, time.process_time() - used))
    (out / f"{rank}.json").write_text(json.dumps(taken))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
