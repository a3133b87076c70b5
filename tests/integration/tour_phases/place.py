"""Where a rank stands, and what later phases share with earlier ones."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


class Place:
    """Where this rank stands, and what later phases share with earlier ones."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.next, self.previous = (self.rank + 1) % self.world, (self.rank - 1) % self.world
        self.arrivals: dict[str, Any] = {}
        self._mesh: DeviceMesh | None = None
        self.sharded: nn.Module | None = None

    def filled(self, size: int = 8, value: float | None = None) -> Tensor:
        return torch.full((size,), float(self.rank if value is None else value))

    def counted(self, size: int) -> Tensor:
        return torch.arange(float(size)) + self.rank

    @property
    def mesh(self) -> DeviceMesh:
        if self._mesh is None:
            self._mesh = init_device_mesh("cpu", (2, self.world // 2), mesh_dim_names=("dp", "tp"))
        return self._mesh
