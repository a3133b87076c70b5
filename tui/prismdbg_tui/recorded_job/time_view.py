"""The time of all ranks in as many lines and cells as there is room for, and how a cursor moves over them. Knows no
widget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prismdbg.diagnosis.lateness.time_parts import PARTS, Floats
from prismdbg.jobs.run_overview import RankRow

HIGHEST = 3  # lines of a rank
_NOBODY = -1
_AS_MUCH = 0.5  # who is awaited for half as long as others of the row wait is what one looks for


@dataclass(frozen=True, slots=True)
class TimePlace:
    """A rank and a part of the time, which stay the same where the terminal has another size."""

    rank: int
    part: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimeView:
    """`per_row` ranks share a row of `height` lines. Shares, 0 to 1, shape (rows, cells), of the rank of the row that
    has most: inside a collective, waiting for a rank that came later, awaited by others. seen: whether a log covers it.
    firsts: the first part of each cell."""

    ranks: tuple[RankRow, ...]
    per_row: int
    height: int
    firsts: NDArray[np.int64]
    inside: Floats
    waiting: Floats
    awaited: Floats
    seen: NDArray[np.bool_]

    @property
    def rows(self) -> int:
        return len(self.inside)

    @property
    def cells(self) -> int:
        return len(self.firsts)

    def ranks_in(self, row: int) -> tuple[RankRow, ...]:
        return self.ranks[row * self.per_row : (row + 1) * self.per_row]

    def parts_in(self, cell: int) -> slice:
        return slice(int(self.firsts[cell]), int(self.firsts[cell + 1]) if cell + 1 < self.cells else PARTS)

    def row_of(self, rank: int) -> int:
        """-1 of a rank that is not here."""
        return next((at // self.per_row for at, row in enumerate(self.ranks) if row.rank == rank), _NOBODY)

    def cell_of(self, part: int) -> int:
        return int(np.searchsorted(self.firsts, part, side="right")) - 1

    def moved(self, place: TimePlace, down: int, right: int) -> TimePlace:
        """By rows and cells as they are drawn, not beyond the edge. In another row of several ranks it comes to the one
        that the cell shows."""
        row, cell = max(self.row_of(place.rank), 0), self.cell_of(place.part)
        to_row, to_cell = _inside(row + down, self.rows), _inside(cell + right, self.cells)
        part = place.part if to_cell == cell else int(self.firsts[to_cell])
        return TimePlace(place.rank, part) if to_row == row else self.at(to_row, to_cell, part)

    def is_awaited(self, row: int, cell: int) -> bool:
        """Whether the cell shows that others wait for the rank, not that it waits."""
        awaited = float(self.awaited[row, cell])
        return awaited > 0 and awaited >= _AS_MUCH * float(self.waiting[row, cell])

    def at(self, row: int, cell: int, part: int | None = None) -> TimePlace:
        """The rank of the row that the cell shows. `part`: one of the cell, if not its first."""
        parts, is_awaited = self.parts_in(cell), self.is_awaited(row, cell)
        times = {each.rank: each.time for each in self.ranks_in(row)}
        most = {rank: float((t.awaited if is_awaited else t.waiting)[parts].mean()) for rank, t in times.items()}
        return TimePlace(max(most, key=most.__getitem__), parts.start if part is None else part)

    def beside(self, place: TimePlace, by: int) -> TimePlace:
        """The next or previous rank, also within a row."""
        at = next((at for at, row in enumerate(self.ranks) if row.rank == place.rank), 0)
        return TimePlace(self.ranks[min(max(at + by, 0), len(self.ranks) - 1)].rank, place.part)

    def longest(self) -> TimePlace:
        """Where the longest wait of all ranks begins."""
        row = max(self.ranks, key=lambda each: each.time.longest_part()[0])
        return TimePlace(row.rank, row.time.longest_part()[1])


def _inside(number: int, count: int) -> int:
    return min(max(number, 0), count - 1)


def time_view(ranks: Sequence[RankRow], lines: int, width: int) -> TimeView:
    """As few ranks a row as fit on so many lines. `ranks`: in their order on the screen, at least one."""
    lines, cells = max(lines, 1), min(max(width, 1), PARTS)
    per_row = -(-len(ranks) // lines)
    rows = -(-len(ranks) // per_row)
    firsts = np.arange(cells) * PARTS // cells
    tops = np.arange(rows) * per_row

    def folded(shares: Sequence[Floats]) -> Floats:
        means = np.add.reduceat(np.stack(shares), firsts, axis=1) / np.diff(firsts, append=PARTS)
        most: Floats = np.maximum.reduceat(means, tops, axis=0)
        return most

    return TimeView(
        ranks=tuple(ranks),
        per_row=per_row,
        height=min(lines // rows, HIGHEST),
        firsts=firsts,
        inside=folded([row.inside for row in ranks]),
        waiting=folded([row.time.waiting for row in ranks]),
        awaited=folded([row.time.awaited for row in ranks]),
        seen=folded([row.time.seen.astype(np.float64) for row in ranks]) > 0,
    )
