"""Groups made, used side by side, split and destroyed."""

import threading
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as distnn
from torch import Tensor

from tour_phases.place import Place
from tour_phases.refusals import NO_LISTS_IN_ALL_TO_ALL, SPLIT_WITHOUT_DEVICE, refusal


def new_group(at: Place) -> Tensor:
    halves = [dist.new_group([0, 1]), dist.new_group(list(range(2, at.world)), group_desc="upper")]
    x = at.filled()
    dist.all_reduce(x, group=halves[0 if at.rank < 2 else 1])
    return x


def new_subgroups(at: Place) -> list[Tensor]:
    mine, _ = dist.new_subgroups(2)
    x, peer = at.filled(), at.rank ^ 1
    dist.all_reduce(x, group=mine)
    y = torch.zeros(3)
    if at.rank < peer:
        dist.send(at.filled(3), peer, group=mine)
    else:
        dist.recv(y, peer, group=mine)
    return [x, y]


def backend_by_device(at: Place) -> Tensor | str:
    """torch's gradient of all_gather depends on the name of the group's backend, and `cpu:gloo` is not `gloo`."""
    x = at.counted(4).requires_grad_()
    group = dist.new_group(backend="cpu:gloo")
    try:
        torch.stack(list(distnn.all_gather(x, group))).square().sum().backward()
    except RuntimeError as error:
        return refusal(error, NO_LISTS_IN_ALL_TO_ALL)
    assert x.grad is not None
    return x.grad


def group_roots(at: Place) -> Tensor:
    """The root by its rank in the group; members not in the order of their ranks' numbers."""
    pairs = [dist.new_group([1, 0]), dist.new_group([3, 2])]
    x = at.filled()
    if at.rank < 4:
        dist.broadcast(x, group_src=1, group=pairs[at.rank // 2])
    return x


def local_group(at: Place) -> Tensor:
    """Made by its members alone, without the others. Every rank makes one: torch 2.14 counts them where they are made,
    and names of later groups come from this count."""
    x = at.filled()
    if at.rank < 4:
        members = [1, 2] if at.rank in (1, 2) else [0, 3]
        dist.all_reduce(x, group=dist.new_group(members, use_local_synchronization=True))
    return x


def split_group(at: Place) -> Tensor | str:
    x = at.filled()
    try:
        half = dist.split_group(split_ranks=[[0, 1], [2, 3]])
    except RuntimeError as error:
        return refusal(error, SPLIT_WITHOUT_DEVICE)
    dist.all_reduce(x, group=half)
    return x


def destroyed_group(at: Place) -> Tensor:
    """A group that is gone leaves the others as they were."""
    group = dist.new_group(timeout=timedelta(seconds=60))
    x = at.filled()
    dist.all_reduce(x, group=group)
    dist.destroy_process_group(group)
    dist.all_reduce(x)
    return x


def threads(at: Place) -> list[Tensor]:
    """Two threads issue at the same time, each on a group of its own."""
    groups = [dist.new_group() for _ in range(2)]
    values = [[at.filled(8, 10 * lane + i) for i in range(5)] for lane in range(2)]

    def lane(number: int) -> None:
        for value in values[number]:
            dist.all_reduce(value, group=groups[number])

    workers = [threading.Thread(target=lane, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return values[0] + values[1]
