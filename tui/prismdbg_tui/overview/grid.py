"""A mesh as a table: some axes make its rows, some its columns, the rest lies inside a cell. And the part one sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from prismdbg.simulate.graph.mesh import Ints, Mesh

Place = tuple[int, int]  # row and column
Axes = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Grid:
    """`ranks[row, column, inside]` is a rank. Of several axes the last one goes on fastest."""

    mesh: Mesh
    rows: Axes
    columns: Axes

    @cached_property
    def inside(self) -> Axes:
        return tuple(name for name in self.mesh.order if name not in (*self.rows, *self.columns))

    @property
    def shape(self) -> tuple[int, int, int]:
        return self._size(self.rows), self._size(self.columns), self._size(self.inside)

    @cached_property
    def ranks(self) -> Ints:
        order = [self.mesh.axis(name) for name in (*self.rows, *self.columns, *self.inside)]
        return np.ascontiguousarray(self.mesh.ranks().transpose(order)).reshape(self.shape)

    def place_of(self, rank: int) -> tuple[int, int, int]:
        at = self.mesh.coordinates(rank)
        row, column, inside = (self._number(names, at) for names in (self.rows, self.columns, self.inside))
        return row, column, inside

    def row_at(self, row: int) -> dict[str, int]:
        return self._coordinates(self.rows, row)

    def column_at(self, column: int) -> dict[str, int]:
        return self._coordinates(self.columns, column)

    def _size(self, names: Sequence[str]) -> int:
        return prod(self.mesh.size(name) for name in names)

    def _number(self, names: Sequence[str], at: dict[str, int]) -> int:
        number = 0
        for name in names:
            number = number * self.mesh.size(name) + at[name]
        return number

    def _coordinates(self, names: Sequence[str], number: int) -> dict[str, int]:
        found = {}
        for name in reversed(names):
            number, found[name] = divmod(number, self.mesh.size(name))
        return {name: found[name] for name in names}


def row_choices(mesh: Mesh) -> tuple[Axes, ...]:
    """What may make the rows: an axis, the product of the outer ones, or nothing: then all is one long row."""
    names = _axes(mesh)
    products = [tuple(names[:cut]) for cut in range(2, len(names))]
    return (*((name,) for name in names[: len(names) if len(names) > 1 else 0]), *products, ())


def column_choices(mesh: Mesh, rows: Axes) -> tuple[Axes, ...]:
    """All other axes, or one of them with the rest inside the cells."""
    others = tuple(name for name in _axes(mesh) if name not in rows)
    return tuple(dict.fromkeys((others, *((name,) for name in others))))


def first_grid(mesh: Mesh) -> Grid:
    rows = row_choices(mesh)[0]
    return Grid(mesh=mesh, rows=rows, columns=column_choices(mesh, rows)[0])


def _axes(mesh: Mesh) -> list[str]:
    """Along which ranks differ, the one whose neighbours are adjacent last."""
    return [name for name in mesh.order if mesh.size(name) > 1] or list(mesh.order[-1:])


@dataclass(frozen=True, slots=True)
class Part:
    """Of a grid what is seen: from `row` and `column` on, so many of each."""

    row: int
    column: int
    rows: int
    columns: int

    @classmethod
    def whole(cls, grid: Grid) -> Part:
        return cls(0, 0, grid.shape[0], grid.shape[1])

    def narrowed(self, grid: Grid, at: Place, *, rows: bool, columns: bool) -> Part:
        """Half as many of either, around a place."""
        halved = replace(
            self,
            rows=-(-self.rows // 2) if rows else self.rows,
            columns=-(-self.columns // 2) if columns else self.columns,
        )
        return halved.around(grid, at)

    def widened(self, grid: Grid, at: Place) -> Part:
        return replace(self, rows=self.rows * 2, columns=self.columns * 2).around(grid, at)

    def around(self, grid: Grid, at: Place) -> Part:
        """As large, inside the grid, with that place in its middle."""
        rows, columns = min(self.rows, grid.shape[0]), min(self.columns, grid.shape[1])
        row = min(max(at[0] - rows // 2, 0), grid.shape[0] - rows)
        column = min(max(at[1] - columns // 2, 0), grid.shape[1] - columns)
        return Part(row, column, rows, columns)

    def showing(self, grid: Grid, at: Place) -> Part:
        """The same, or moved as little as it takes to show that place."""
        row = min(max(self.row, at[0] - self.rows + 1), at[0])
        column = min(max(self.column, at[1] - self.columns + 1), at[1])
        return Part(row, column, self.rows, self.columns)
