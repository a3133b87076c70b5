"""Where one looks in the overview: the number shown, the axes, the part that is seen, the rank under the cursor. Knows
no widget."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.simulate.graph.mesh import Ints
from prismdbg_tui.overview.folding import Fold, Folded, fold, frame_for
from prismdbg_tui.overview.grid import Axes, Grid, Part, Place, column_choices, first_grid, row_choices
from prismdbg_tui.overview.job import Metric, OverviewJob
from prismdbg_tui.overview.scale import Scale


class MapView:
    """`rank` is the one under the cursor; `lines` and `width`: the room for cells, set by whoever draws them."""

    def __init__(self, job: OverviewJob) -> None:
        self.job = job
        self.rank = 0
        self.lines, self.width = 16, 64
        self.fold = Fold.MOST
        self.even = False
        self._metric = 0
        self._orders: dict[int, tuple[Ints, Ints]] = {}
        self._scales: dict[tuple[int, bool], Scale] = {}
        self._choose(first_grid(job.mesh))
        self.go_to(int(self.metric.values.argmax()))

    # the number that is shown

    @property
    def metric(self) -> Metric:
        return self.job.metrics[self._metric]

    def change_metric(self, by: int) -> None:
        self._metric = (self._metric + by) % len(self.job.metrics)
        self._forget()

    def choose_metric(self, number: int) -> None:
        if not 0 <= number < len(self.job.metrics):
            raise UsageError(f"there are only {len(self.job.metrics)} values")
        self._metric = number
        self._forget()

    def change_scale(self) -> None:
        """Levels of the scale as wide as each other, or with as many ranks."""
        self.even = not self.even
        self._forget()

    @property
    def scale(self) -> Scale:
        key = self._metric, self.even
        if key not in self._scales:
            self._scales[key] = Scale.of(self.metric.values, even=self.even)
        return self._scales[key]

    def change_fold(self) -> None:
        ways = list(Fold)
        self.fold = ways[(ways.index(self.fold) + 1) % len(ways)]
        self._forget()

    # axes

    def change_rows(self) -> None:
        """The next axis or product of axes; the columns are all others."""
        rows = _after(row_choices(self.job.mesh), self.grid.rows)
        self._choose(Grid(mesh=self.job.mesh, rows=rows, columns=column_choices(self.job.mesh, rows)[0]))

    def change_columns(self) -> None:
        columns = _after(column_choices(self.job.mesh, self.grid.rows), self.grid.columns)
        self._choose(Grid(mesh=self.job.mesh, rows=self.grid.rows, columns=columns))

    def swap(self) -> None:
        self._choose(Grid(mesh=self.job.mesh, rows=self.grid.columns, columns=self.grid.rows))

    def _choose(self, grid: Grid) -> None:
        self.grid = grid
        self.part = Part.whole(grid)
        self._forget()

    # the part that is seen

    def fit(self, lines: int, width: int) -> None:
        if (lines, width) != (self.lines, self.width):
            self.lines, self.width = lines, width
            self._forget()

    @cached_property
    def folded(self) -> Folded:
        frame = frame_for(self.grid, self.part, self.lines, self.width)
        return fold(self.grid, self.part, frame, self.metric.values, self.job.ran, self.fold)

    @property
    def rows_needed(self) -> int:
        """Lines for a map with a line a row; more where a row would have to be folded."""
        wraps = -(-self.part.columns // max(self.width, 1)) if self.part.rows <= 4 else 1
        return max(self.part.rows * min(wraps, 16), 6)

    def _forget(self) -> None:
        self.__dict__.pop("folded", None)

    def zoom_in(self) -> None:
        """Until each cell is one row and one column."""
        frame = self.folded.frame
        rows, columns = frame.rows_a_cell > 1, frame.columns_a_cell > 1
        if not rows and not columns:
            inside = f"; {self.grid.shape[2]} ranks in each cell: choose other axes to separate them"
            raise UsageError("each cell is one row and one column" + (inside if self.grid.shape[2] > 1 else ""))
        self.part = self.part.narrowed(self.grid, self._place, rows=rows, columns=columns)
        self._forget()

    def zoom_out(self) -> None:
        self.part = self.part.widened(self.grid, self._place)
        self._forget()

    def zoom_all(self) -> None:
        self.part = Part.whole(self.grid)
        self._forget()

    # the cursor

    @property
    def _place(self) -> Place:
        return self.grid.place_of(self.rank)[:2]

    @property
    def cell(self) -> Place:
        return self.folded.cell_of(self._place)

    @property
    def ranks_here(self) -> Ints:
        """All that the cursor's cell stands for."""
        return self.folded.ranks_in(self.cell)

    def go_to(self, rank: int) -> None:
        self.rank = self.job.mesh.check_rank(rank)
        seen = self.part.showing(self.grid, self._place)
        if seen != self.part:
            self.part = seen
            self._forget()

    def move(self, lines: int, cells: int) -> None:
        """By cells as they are drawn; past the edge of what is seen the rest comes in. In the cell it comes to, the
        cursor is on the rank for which the cell has its number."""
        frame, (row, column) = self.folded.frame, self.cell
        if lines:
            line = row * frame.wraps + column // frame.across + lines
            row, wrap = divmod(line, frame.wraps)
            column = min(wrap * frame.across + column % frame.across, frame.cells - 1)
        at = self.folded.place_of((row, column + cells))
        if not 0 <= at[0] < self.grid.shape[0]:
            return
        place = _inside(at[0], self.grid.shape[0]), _inside(at[1], self.grid.shape[1])
        seen = self.part.showing(self.grid, place)
        if seen != self.part:
            self.part = seen
            self._forget()
        self.choose_cell(self.folded.cell_of(place))

    def choose_cell(self, cell: Place) -> None:
        ranks = self.folded.ranks_in(cell)
        values = self.metric.values[ranks]
        self.rank = int(ranks[values.argmin() if self.fold is Fold.LEAST else values.argmax()])

    def step_inside(self, by: int) -> None:
        """The rank before or after in the cursor's cell."""
        ranks = self.ranks_here
        at = int(np.flatnonzero(ranks == self.rank)[0])
        if not 0 <= at + by < len(ranks):
            raise UsageError(
                "already at the last rank of this cell" if by > 0 else "already at the first rank of this cell"
            )
        self.rank = int(ranks[at + by])

    def next_by_value(self, by: int) -> None:
        """From the largest to the smallest; of equals the lower rank first."""
        order, place_of = self._order()
        at = int(place_of[self.rank]) + by
        if not 0 <= at < len(order):
            raise UsageError("already at the smallest" if by > 0 else "already at the largest")
        self.go_to(int(order[at]))

    def largest(self) -> None:
        self.go_to(int(self._order()[0][0]))

    def place_by_value(self) -> int:
        """1 for the largest."""
        return int(self._order()[1][self.rank]) + 1

    def _order(self) -> tuple[Ints, Ints]:
        if self._metric not in self._orders:
            order = np.argsort(-self.metric.values, kind="stable")
            place_of = np.empty_like(order)
            place_of[order] = np.arange(len(order))
            self._orders[self._metric] = order, place_of
        return self._orders[self._metric]

    def rank_named(self, text: str) -> int:
        """`617`, or coordinates: `pp=1 dp=13`, where axes that are not named stay as they are."""
        mesh = self.job.mesh
        words = text.replace(",", " ").split()
        if len(words) == 1 and words[0].isdecimal() and len(words[0]) < 12:
            return mesh.check_rank(int(words[0]))
        at = dict(mesh.coordinates(self.rank))
        for word in words:
            name, _, number = word.partition("=")
            if not (number.isdecimal() and len(number) < 12):
                raise UsageError(f"{word!r} is not a rank", hint="write 617, or coordinates: pp=1 dp=13")
            mesh.axis(name)
            at[name] = int(number)
        return mesh.rank(**at)


def _after(all_of_them: tuple[Axes, ...], now: Axes) -> Axes:
    at = all_of_them.index(now) if now in all_of_them else -1
    return all_of_them[(at + 1) % len(all_of_them)]


def _inside(number: int, count: int) -> int:
    return min(max(number, 0), count - 1)
