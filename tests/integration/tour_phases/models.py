"""Models of a few layers, and what trains them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tour_phases.place import Place


def seeded(module: Callable[[], nn.Module], seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return module()


def gradients(module: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def batch(at: Place, rows: int = 8) -> Tensor:
    torch.manual_seed(100 + at.rank)
    return torch.randn(rows, 16)
