"""Functional collectives, and those that autograd goes through."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as distnn
from torch import Tensor

from tour_phases.place import Place


def functional(at: Place) -> list[Tensor]:
    world = dist.group.WORLD
    return [
        funcol.all_reduce(at.filled(), "sum", world) + 0,
        funcol.all_gather_tensor(at.filled(), 0, world) + 0,
        funcol.reduce_scatter_tensor(at.counted(8 * at.world), "sum", 0, world) + 0,
        funcol.all_to_all_single(at.counted(at.world), None, None, world) + 0,
        funcol.broadcast(at.filled(), 0, world) + 0,
        funcol.permute_tensor(at.filled(), [(i + 1) % at.world for i in range(at.world)], world) + 0,
    ]


def functional_coalesced(at: Place) -> list[Tensor]:
    world = dist.group.WORLD
    pair, wide = [at.filled(), at.filled(4)], [at.counted(8 * at.world), at.counted(4 * at.world)]
    reduced = funcol.all_reduce_coalesced(pair, "sum", world)
    gathered = funcol.all_gather_into_tensor_coalesced(pair, world)
    scattered = funcol.reduce_scatter_tensor_coalesced(wide, "sum", [0, 0], world)
    return [tensor + 0 for tensor in [*reduced, *gathered, *scattered]]


def functional_autograd(at: Place) -> list[Tensor]:
    world = dist.group.WORLD
    x = at.counted(8).requires_grad_()
    wide = at.counted(8 * at.world).requires_grad_()
    gathered = funcol.all_gather_tensor_autograd(x, 0, world)
    scattered = funcol.reduce_scatter_tensor_autograd(wide, "sum", 0, world)
    swapped = funcol.all_to_all_single_autograd(wide, None, None, world)
    (gathered.square().sum() + scattered.square().sum() + swapped.pow(3).sum()).backward()
    assert x.grad is not None and wide.grad is not None
    return [x.grad, wide.grad]


def autograd_functions(at: Place) -> Tensor:
    x = at.counted(4).requires_grad_()
    y = distnn.all_reduce(x * 2).sum() + torch.stack(list(distnn.all_gather(x))).square().sum()
    y.backward()
    assert x.grad is not None
    return x.grad
