"""A part of a grid folded into as many cells as there is room for: whom a cell stands for, and one number of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from prismdbg.simulate.graph.mesh import Ints
from prismdbg_tui.overview.grid import Grid, Part, Place

WIDEST, HIGHEST = 12, 3  # of a cell, in characters and lines
_COMFORTABLE = 2  # characters a cell has where there is room for more lines


class Fold(StrEnum):
    """What a cell of many ranks shows."""

    MOST = "most"
    MEAN = "mean"
    LEAST = "least"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """`rows_a_cell` by `columns_a_cell` make a cell; a row of cells goes on over lines of `across` of them, each
    `cell_width` characters by `cell_height` lines."""

    rows_a_cell: int
    columns_a_cell: int
    down: int
    cells: int
    across: int
    cell_width: int
    cell_height: int

    @property
    def wraps(self) -> int:
        return _over(self.cells, self.across)

    @property
    def lines(self) -> int:
        return self.down * self.wraps * self.cell_height

    @property
    def width(self) -> int:
        return self.across * self.cell_width

    def corner(self, cell: Place) -> tuple[int, int]:
        """The first line and character of a cell."""
        row, column = cell
        wrap, along = divmod(column, self.across)
        return (row * self.wraps + wrap) * self.cell_height, along * self.cell_width

    def cell_on(self, line: int, character: int) -> Place | None:
        """The cell drawn there; None outside."""
        row, wrap = divmod(line // self.cell_height, self.wraps)
        along = character // self.cell_width
        column = wrap * self.across + along
        if not (0 <= row < self.down and 0 <= along < self.across and column < self.cells):
            return None
        return row, column


def frame_for(grid: Grid, part: Part, lines: int, width: int) -> Frame:
    """As few ranks a cell as fit on so many lines and characters."""
    lines, width = max(lines, 1), max(width, 1)
    rows_a_cell = _over(part.rows, lines)
    down = _over(part.rows, rows_a_cell)
    most_wraps = max(lines // down, 1)
    columns_a_cell = _aligned(grid, _over(part.columns, most_wraps * width))
    cells = _over(part.columns, columns_a_cell)
    wraps = min(most_wraps, _over(cells * _COMFORTABLE, width), cells)
    across = _in_blocks(grid, columns_a_cell, _over(cells, wraps), width)
    wraps = _over(cells, across)
    return Frame(
        rows_a_cell=rows_a_cell,
        columns_a_cell=columns_a_cell,
        down=down,
        cells=cells,
        across=across,
        cell_width=min(max(width // across, 1), WIDEST),
        cell_height=min(max(lines // (down * wraps), 1), HIGHEST),
    )


def _over(number: int, by: int) -> int:
    return -(-number // by)


def _aligned(grid: Grid, least: int) -> int:
    """At least so many columns a cell: whole blocks of the innermost axes, unless that took twice as many."""
    if least <= 1:
        return 1
    block = 1
    for name in reversed(grid.columns):
        size = grid.mesh.size(name)
        for divisor in range(1, size + 1):
            if size % divisor == 0 and block * divisor >= least:
                return block * divisor if block * divisor < 2 * least else least
        block *= size
    return least


def _in_blocks(grid: Grid, columns_a_cell: int, across: int, width: int) -> int:
    """A line ends where a block of the innermost axes ends, where the width allows it."""
    block = 1
    for name in reversed(grid.columns):
        block *= grid.mesh.size(name)
        if block % columns_a_cell:
            continue
        whole = _over(across, block // columns_a_cell) * (block // columns_a_cell)
        if whole > width or block // columns_a_cell > across:
            break
        across = whole
    return across


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Folded:
    """`values`: of each cell, down by across all. `ran`: whether a rank in it really ran."""

    grid: Grid
    part: Part
    frame: Frame
    values: NDArray[np.float64]
    ran: NDArray[np.bool_]

    def cell_of(self, place: Place) -> Place:
        """Of a row and a column that are seen."""
        return (place[0] - self.part.row) // self.frame.rows_a_cell, (
            place[1] - self.part.column
        ) // self.frame.columns_a_cell

    def place_of(self, cell: Place) -> Place:
        """The first row and column of a cell."""
        return (
            self.part.row + cell[0] * self.frame.rows_a_cell,
            self.part.column + cell[1] * self.frame.columns_a_cell,
        )

    def ranks_in(self, cell: Place) -> Ints:
        """In the order of the grid."""
        row, column = self.place_of(cell)
        last_row = min(row + self.frame.rows_a_cell, self.part.row + self.part.rows)
        last_column = min(column + self.frame.columns_a_cell, self.part.column + self.part.columns)
        return self.grid.ranks[row:last_row, column:last_column].ravel()


def fold(grid: Grid, part: Part, frame: Frame, values: Ints, ran: frozenset[int], how: Fold) -> Folded:
    """`values`: by rank."""
    seen = grid.ranks[part.row : part.row + part.rows, part.column : part.column + part.columns]
    has_run = np.zeros(grid.mesh.world, dtype=np.bool_)
    has_run[[rank for rank in ran if rank < grid.mesh.world]] = True
    return Folded(
        grid=grid,
        part=part,
        frame=frame,
        values=_reduced(values[seen].astype(np.float64), frame, how),
        ran=_reduced(has_run[seen].astype(np.float64), frame, Fold.MOST) > 0,
    )


def _reduced(seen: NDArray[np.float64], frame: Frame, how: Fold) -> NDArray[np.float64]:
    rows = np.arange(0, seen.shape[0], frame.rows_a_cell)
    columns = np.arange(0, seen.shape[1], frame.columns_a_cell)
    reduce = {Fold.MOST: np.maximum, Fold.MEAN: np.add, Fold.LEAST: np.minimum}[how]
    cells = reduce.reduceat(reduce.reduceat(reduce.reduce(seen, axis=2), rows, axis=0), columns, axis=1)
    if how is Fold.MEAN:
        high = np.diff(np.append(rows, seen.shape[0]))[:, None]
        wide = np.diff(np.append(columns, seen.shape[1]))[None, :]
        cells = cells / (high * wide * seen.shape[2])
    found: NDArray[np.float64] = cells
    return found
