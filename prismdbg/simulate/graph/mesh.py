"""The job's device mesh: named axes, ranks, coordinates. Which links join them is not in here (`topology`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from prismdbg.errors import UsageError
from prismdbg.model.plurals import counted

Ints = NDArray[np.int64]

_AXIS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=([0-9]{1,9})")
LARGEST_WORLD = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """`order`: from the axis whose neighbours lie farthest apart in rank numbers to the one where they are adjacent.

    A *position* is the row-major index over `axes`; it stays where it is when the order changes, the rank does not.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    order: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, *, world: int | None = None, order: str = "") -> Mesh:
        """`pp=16,dp=64,tp=8`; the last axis has adjacent ranks unless `order` says otherwise."""
        names: list[str] = []
        sizes: list[int] = []
        for part in text.split(","):
            match = _AXIS.fullmatch(part.strip())
            if match is None or int(match[2]) < 1:
                raise UsageError(
                    f"mesh {text!r}: {part.strip()!r} is not an axis", hint="write axis=size, as in pp=16,dp=64,tp=8"
                )
            names.append(match[1])
            sizes.append(int(match[2]))
        if len(set(names)) != len(names):
            raise UsageError(f"mesh {text!r} has an axis twice", hint="give each axis a name of its own")
        if prod(sizes) > LARGEST_WORLD:
            raise UsageError(
                f"mesh {text!r} has {counted(prod(sizes), 'rank')}", hint=f"give at most {LARGEST_WORLD:,} ranks"
            )
        mesh = cls(names=tuple(names), sizes=tuple(sizes), order=tuple(names))
        if world is not None:
            mesh.check_world(world)
        return mesh.reordered([name.strip() for name in order.split(",")]) if order else mesh

    @property
    def world(self) -> int:
        return prod(self.sizes)

    def __str__(self) -> str:
        text = ",".join(f"{name}={size}" for name, size in zip(self.names, self.sizes, strict=True))
        return text if self.order == self.names else f"{text} in the order {','.join(self.order)}"

    def check_world(self, world: int) -> None:
        if self.world != world:
            product = " x ".join(str(size) for size in self.sizes) + " = " if len(self.sizes) > 1 else ""
            raise UsageError(
                f"mesh {self} has {product}{counted(self.world, 'rank')}, and the world has {counted(world, 'rank')}",
                hint=self._fitting(world),
            )

    def _fitting(self, world: int) -> str:
        """One axis that could make it fit."""
        for name, size in reversed(list(zip(self.names, self.sizes, strict=True))):
            rest = self.world // size
            if world > 0 and world % rest == 0:
                return f"use {name}={world // rest}, or a world of {self.world}"
        return f"change the axes, or use a world of {self.world}"

    def axis(self, name: str) -> int:
        """The place of this axis in `names`."""
        if name not in self.names:
            raise UsageError(f"axis {name!r} is not in the mesh {self}", hint=f"give one of: {', '.join(self.names)}")
        return self.names.index(name)

    def size(self, name: str) -> int:
        return self.sizes[self.axis(name)]

    def reordered(self, order: Sequence[str]) -> Mesh:
        for name in order:
            self.axis(name)
        if len(order) != len(self.names) or len(set(order)) != len(order):
            raise UsageError(
                f"the order {','.join(order)} does not contain each axis of {self} once",
                hint=f"write all of: {', '.join(self.names)}",
            )
        return Mesh(names=self.names, sizes=self.sizes, order=tuple(order))

    def check_rank(self, rank: int) -> int:
        if not 0 <= rank < self.world:
            raise UsageError(
                f"rank {rank} is not in the mesh {self}", hint=f"give a rank from 0 to {self.world - 1} in this world"
            )
        return rank

    def ranks(self) -> Ints:
        """The rank at each position, shaped by the axes."""
        sizes = [self.size(name) for name in self.order]
        by_order = np.arange(self.world, dtype=np.int64).reshape(sizes)
        return by_order.transpose([self.order.index(name) for name in self.names])

    def coordinates(self, rank: int) -> dict[str, int]:
        left = self.check_rank(rank)
        found: dict[str, int] = {}
        for name in reversed(self.order):
            left, found[name] = divmod(left, self.size(name))
        return {name: found[name] for name in self.names}

    def rank(self, **coordinates: int) -> int:
        """The inverse; axes that are not named are at 0."""
        for name, at in coordinates.items():
            if not 0 <= at < self.size(name):
                raise UsageError(
                    f"{name}={at} is outside the mesh {self}", hint=f"{name} goes from 0 to {self.size(name) - 1}"
                )
        rank = 0
        for name in self.order:
            rank = rank * self.size(name) + coordinates.get(name, 0)
        return rank

    def say(self, rank: int) -> str:
        """`rank 617 (pp=1 dp=13 tp=1)`."""
        return f"rank {rank} ({' '.join(f'{name}={at}' for name, at in self.coordinates(rank).items())})"
