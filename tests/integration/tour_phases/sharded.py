"""Sharded models: FSDP, DTensor, tensor parallelism, a pipeline, a distributed checkpoint."""

import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tour_phases.models import batch, gradients, seeded
from tour_phases.place import Place

CPU = torch.device("cpu")


def fsdp2(at: Place) -> list[Tensor]:
    from torch.distributed.fsdp import fully_shard

    model = seeded(lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), 7)
    fully_shard(model[0], mesh=at.mesh["dp"])
    fully_shard(model, mesh=at.mesh["dp"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(batch(at)).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    at.sharded = model
    return [p.to_local().detach() for p in model.parameters()]


def fsdp2_hybrid(at: Place) -> list[Tensor]:
    """Sharded over one axis, replicated over the other."""
    from torch.distributed.fsdp import fully_shard

    model = seeded(lambda: nn.Linear(16, 4), 8)
    fully_shard(model, mesh=at.mesh)
    model(batch(at)).sum().backward()
    return [g.to_local() for g in gradients(model)]


def fsdp1(at: Place) -> list[Tensor]:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(seeded(lambda: nn.Linear(16, 4), 9), device_id=CPU)
    for _ in range(2):
        model(batch(at)).sum().backward()
    return gradients(model)


def dtensor(at: Place) -> list[Tensor]:
    import torch.distributed.tensor as dt

    mesh = at.mesh["tp"]
    torch.manual_seed(10)
    rows = dt.distribute_tensor(torch.randn(8, 8), mesh, [dt.Shard(0)])
    columns = rows.redistribute(mesh, [dt.Shard(1)])
    return [
        (rows @ rows.redistribute(mesh, [dt.Replicate()])).full_tensor(),
        columns.to_local(),
        rows.sum().full_tensor(),
    ]


def tensor_parallel(at: Place) -> list[Tensor]:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    model = seeded(lambda: nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)), 11)
    # What the norm gives is sharded along the sequence, which not every torch flattens for the linear layer.
    colwise = ColwiseParallel(input_layouts=Shard(1))
    parallelize_module(model, at.mesh["tp"], {"0": SequenceParallel(), "1": colwise, "3": RowwiseParallel()})
    torch.manual_seed(12)
    model(torch.randn(4, 8, 16)).sum().backward()
    return [g.full_tensor() for g in gradients(model)]


def pipeline(at: Place) -> list[Tensor]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    module = seeded(lambda: nn.Linear(16, 16), 13 + at.rank)
    stage = PipelineStage(module, at.rank, at.world, CPU)
    schedule = Schedule1F1B(stage, n_microbatches=at.world, loss_fn=lambda a, b: ((a - b) ** 2).mean())
    torch.manual_seed(14)
    inputs, targets = torch.randn(at.world * 2, 16), torch.randn(at.world * 2, 16)
    losses: list[Tensor] = []
    if at.rank == 0:
        schedule.step(inputs)
    elif at.rank == at.world - 1:
        schedule.step(target=targets, losses=losses)
    else:
        schedule.step()
    return gradients(module) + [loss.detach() for loss in losses]


def checkpoint(at: Place) -> list[Tensor]:
    import torch.distributed.checkpoint as dcp

    assert at.sharded is not None
    folder: list[Any] = [tempfile.mkdtemp() if at.rank == 0 else None]
    dist.broadcast_object_list(folder, 0)
    dcp.save({"model": at.sharded.state_dict()}, checkpoint_id=folder[0])
    return [p.to_local().detach() for p in at.sharded.parameters()]
