"""Which ranks of a mesh are taken to do the same: along each axis the coordinates at which another kind begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.simulate.graph.mesh import Ints, Mesh


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """`begins`: of every axis, ascending from 0. (0,): all coordinates are alike; (0, 1): the first is another kind.

    A kind is one interval of each axis. Its *base* is the rank at the begin of all of them.
    """

    mesh: Mesh
    begins: Mapping[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        for name in self.begins:
            self.mesh.axis(name)
        for name, size in zip(self.mesh.names, self.mesh.sizes, strict=True):
            begins = self.begins.get(name, ())
            if not begins or begins[0] or any(b <= a for a, b in pairwise(begins)) or begins[-1] >= size:
                raise UsageError(
                    f"kinds of ranks along {name} begin at {list(begins)}, which does not fit the mesh {self.mesh}",
                    hint=f"write coordinates that ascend from 0 to {size - 1} at most",
                )

    @property
    def alike(self) -> tuple[str, ...]:
        """Axes along which all ranks are taken to do the same."""
        return tuple(n for n, s in zip(self.mesh.names, self.mesh.sizes, strict=True) if s > 1 == len(self.begins[n]))

    def bases(self) -> list[int]:
        """The base of each kind, by the kind's number."""
        places = product(*(self.begins[name] for name in self.mesh.names))
        return [self.mesh.rank(**dict(zip(self.mesh.names, place, strict=True))) for place in places]

    def interval(self, axis: str, coordinate: int) -> range:
        """The coordinates of the same kind."""
        begins = self.begins[axis]
        number = int(np.searchsorted(begins, coordinate, side="right"))
        return range(begins[number - 1], begins[number] if number < len(begins) else self.mesh.size(axis))

    def base_of(self, rank: int) -> int:
        place = self.mesh.coordinates(rank)
        return self.mesh.rank(**{name: self.interval(name, at).start for name, at in place.items()})

    def size_of(self, base: int) -> int:
        """How many ranks are of its kind."""
        return int(np.prod([len(self.interval(name, at)) for name, at in self.mesh.coordinates(base).items()]))

    def by_position(self) -> Ints:
        """The number of the kind of the rank at each position."""
        found = np.zeros(self.mesh.sizes, dtype=np.int64)
        for number, name in enumerate(self.mesh.names):
            begins = self.begins[name]
            at = np.searchsorted(begins, np.arange(self.mesh.size(name)), side="right") - 1
            shape = [-1 if place == number else 1 for place in range(len(self.mesh.names))]
            found = found * len(begins) + at.reshape(shape)
        return found.ravel()
