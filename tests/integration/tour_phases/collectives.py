"""Collectives on tensors."""

import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from tour_phases.place import Place
from tour_phases.refusals import NO_LISTS_IN_ALL_TO_ALL, refusal


def all_reduce(at: Place) -> Tensor:
    x = at.filled()
    dist.all_reduce(x)
    return x


def all_reduce_operators(at: Place) -> list[Tensor]:
    floats = [dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]
    bits = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
    values = [at.filled(4, at.rank + 1) for _ in floats] + [torch.tensor([at.rank + 3]) for _ in bits]
    for value, operator in zip(values, floats + bits, strict=True):
        dist.all_reduce(value, operator)
    return values


def all_reduce_types(at: Place) -> list[Tensor]:
    types = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64]
    values = [torch.arange(5).to(kind) for kind in types]
    values += [torch.tensor(float(at.rank)), torch.ones(2, 0, 3), torch.ones(3, 4)[:2]]
    for value in values:
        dist.all_reduce(value)
    return values


def nonfinite(at: Place) -> Tensor:
    x = torch.tensor([1.0, float("nan") if at.rank == 1 else 2.0, float("inf")])
    dist.all_reduce(x)
    return x


def all_reduce_async(at: Place) -> list[Tensor]:
    values = [at.filled(8, i) for i in range(3)]
    works = [dist.all_reduce(value, async_op=True) for value in values]
    for work in reversed(works):
        work.wait()
    return values


def all_reduce_future(at: Place) -> list[Tensor]:
    work = dist.all_reduce(at.filled(), async_op=True)
    doubled = work.get_future().then(lambda done: done.value()[0] * 2)
    plus_one = doubled.then(lambda done: done.value() + 1)
    return [doubled.wait(), plus_one.wait()]


def futures_collected(at: Place) -> list[Tensor]:
    works = [dist.all_reduce(at.filled(4, i), async_op=True) for i in range(2)]
    together = torch.futures.collect_all([work.get_future() for work in works])
    return [done.value()[0].clone() for done in together.wait()]


def wait_with_timeout(at: Place) -> tuple[bool, Tensor]:
    x = at.filled()
    work = dist.all_reduce(x, async_op=True)
    work.wait(timedelta(seconds=60))
    return work.is_completed(), x


def polled(at: Place) -> list[Tensor]:
    """Works say that they are complete before anybody waits."""
    x, y = at.filled(), torch.zeros(8 * at.world)
    works = [dist.all_reduce(x, async_op=True), dist.all_gather_into_tensor(y, at.filled(), async_op=True)]
    end = time.monotonic() + 30
    while not all(work.is_completed() for work in works):
        assert time.monotonic() < end, "not complete within 30 s"
    assert all(work.is_success() for work in works)
    return [x.clone(), y.clone(), *[tensor.clone() for tensor in works[0].result()]]


def made_in_inference_mode(at: Place) -> list[Tensor]:
    """A backend writes such tensors outside that mode, too."""
    with torch.inference_mode():
        total, told, swapped = at.filled(), at.filled(), torch.zeros(at.world)
    dist.all_reduce(total)
    dist.broadcast(told, 1)
    dist.all_to_all_single(swapped, at.filled(at.world))
    return [total, told, swapped]


def all_gather(at: Place) -> list[Tensor]:
    outputs = [torch.zeros(8) for _ in range(at.world)]
    dist.all_gather(outputs, at.filled())
    return outputs


def all_gather_into_tensor(at: Place) -> Tensor:
    output = torch.zeros(8 * at.world)
    dist.all_gather_into_tensor(output, at.filled())
    return output


def reduce_scatter(at: Place) -> Tensor:
    output = torch.zeros(8)
    dist.reduce_scatter(output, [at.filled(8, i + at.rank) for i in range(at.world)])
    return output


def reduce_scatter_tensor(at: Place) -> Tensor:
    output = torch.zeros(8)
    work = dist.reduce_scatter_tensor(output, at.counted(8 * at.world), async_op=True)
    work.wait()
    return output


def broadcast(at: Place) -> list[Tensor]:
    values = [at.filled() for _ in range(at.world)]
    for root, value in enumerate(values):
        dist.broadcast(value, root)
    return values


def reduce(at: Place) -> Tensor | None:
    x = at.filled()
    dist.reduce(x, 1)
    return x if at.rank == 1 else None  # elsewhere the backend leaves what it likes


def gather(at: Place) -> list[Tensor] | None:
    outputs = [torch.zeros(8) for _ in range(at.world)] if at.rank == 0 else None
    dist.gather(at.filled(), outputs, 0)
    return outputs


def scatter(at: Place) -> Tensor:
    x = torch.zeros(8)
    dist.scatter(x, [at.filled(8, i) for i in range(at.world)] if at.rank == 2 else None, 2)
    return x


def all_to_all_single(at: Place) -> Tensor:
    output = torch.zeros(at.world)
    dist.all_to_all_single(output, at.counted(at.world))
    return output


def all_to_all_splits(at: Place) -> Tensor:
    sent = [peer + 1 for peer in range(at.world)]
    received = [at.rank + 1] * at.world
    output = torch.zeros(sum(received))
    dist.all_to_all_single(output, at.filled(sum(sent)), received, sent)
    return output


def all_to_all(at: Place) -> list[Tensor] | str:
    outputs = [torch.zeros(2) for _ in range(at.world)]
    try:
        dist.all_to_all(outputs, [at.filled(2, at.rank + i) for i in range(at.world)])
    except RuntimeError as error:
        return refusal(error, NO_LISTS_IN_ALL_TO_ALL)
    return outputs


def barriers(at: Place) -> None:
    dist.barrier()
    dist.barrier(async_op=True).wait()
    options = dist.BarrierOptions()
    options.timeout = timedelta(days=50)  # more milliseconds than 32 bits have
    dist.group.WORLD.barrier(opts=options).wait()
    dist.monitored_barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=60), wait_all_ranks=True)


def coalescing_manager(at: Place) -> list[Tensor]:
    from torch.distributed.distributed_c10d import _coalescing_manager

    values = [at.filled(8, at.rank + i) for i in range(3)]
    with _coalescing_manager():
        for value in values:
            dist.all_reduce(value)
    return values
