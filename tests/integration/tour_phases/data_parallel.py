"""Replicated models: DistributedDataParallel, its hooks, Join, ZeRO."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tour_phases.models import batch, gradients, seeded
from tour_phases.place import Place


def ddp(at: Place) -> list[Tensor]:
    model = seeded(lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 4)), 1)
    wrapped = DistributedDataParallel(model)
    for _ in range(2):
        wrapped(batch(at)).sum().backward()
    with wrapped.no_sync():
        wrapped(batch(at)).sum().backward()
    return gradients(model)


def ddp_many_buckets(at: Place) -> list[Tensor]:
    """Small buckets, an unused parameter, gradients as views of the buckets."""
    model = seeded(lambda: nn.ModuleList(nn.Linear(16, 16) for _ in range(4)), 2)

    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = model

        def forward(self, x: Tensor) -> Tensor:
            for layer in list(model)[: 3 if at.rank else 4]:
                x = layer(x)
            return x

    wrapped = DistributedDataParallel(
        Skips(), bucket_cap_mb=1e-3, find_unused_parameters=True, gradient_as_bucket_view=True
    )
    for _ in range(2):
        wrapped(batch(at)).sum().backward()
    return gradients(model)


def ddp_hooks(at: Place) -> list[Tensor]:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    def halved(_: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0] / 2)

    found = []
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, halved):
        model = seeded(lambda: nn.Linear(16, 4), 3)
        wrapped = DistributedDataParallel(model)
        wrapped.register_comm_hook(None, hook)
        wrapped(batch(at)).sum().backward()
        found += gradients(model)
    return found


def ddp_power_sgd(at: Place) -> list[Tensor]:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    model = seeded(lambda: nn.Linear(16, 16), 3)
    wrapped = DistributedDataParallel(model)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        wrapped(batch(at)).sum().backward()
    return gradients(model)


def ddp_join(at: Place) -> list[Tensor]:
    """Ranks with fewer batches shadow the collectives of the others."""
    model = seeded(lambda: nn.Linear(16, 4), 4)
    wrapped = DistributedDataParallel(model)
    with wrapped.join():
        for _ in range(1 + at.rank):
            wrapped(batch(at)).sum().backward()
    return gradients(model)


def sparse_gradients(at: Place) -> Tensor:
    model = seeded(lambda: nn.Embedding(10, 3, sparse=True), 5)
    wrapped = DistributedDataParallel(model)
    wrapped(torch.tensor([at.rank, 4, 4])).sum().backward()
    return gradients(model)[0].to_dense()


def zero(at: Place) -> list[Tensor]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = seeded(lambda: nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 8)), 6)
    wrapped = DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.Adam, lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        wrapped(batch(at)).sum().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]
