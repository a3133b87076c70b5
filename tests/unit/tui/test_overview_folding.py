"""The overview's cells: every rank is in one of them, at every size and with all axes; a cell says what it should."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prismdbg_tui.overview.folding import Fold, fold, frame_for
from prismdbg_tui.overview.grid import Grid, Part, column_choices, first_grid, row_choices
from prismdbg_tui.overview.scale import LEVELS, Scale

from prismdbg.simulate.graph.mesh import Mesh

LARGE = Mesh.parse("pp=16,dp=64,tp=8")


def grids(mesh: Mesh) -> list[Grid]:
    rows = row_choices(mesh)
    return [Grid(mesh=mesh, rows=row, columns=column) for row in rows for column in column_choices(mesh, row)]


def test_at_first_the_outermost_axis_makes_the_rows() -> None:
    grid = first_grid(LARGE)
    assert (grid.rows, grid.columns, grid.shape) == (("pp",), ("dp", "tp"), (16, 512, 1))
    assert grid.ranks[1, 13 * 8 + 1, 0] == LARGE.rank(pp=1, dp=13, tp=1)
    assert first_grid(Mesh.parse("dp=8")).shape == (1, 8, 1)
    assert first_grid(Mesh.parse("dp=1")).shape == (1, 1, 1)
    assert first_grid(Mesh.parse("pp=1,dp=8,tp=2")).rows == ("dp",)


@pytest.mark.parametrize("mesh", [LARGE, Mesh.parse("dp=6,tp=2", order="tp,dp"), Mesh.parse("dp=7")])
def test_every_rank_has_one_place(mesh: Mesh) -> None:
    for grid in grids(mesh):
        assert sorted(grid.ranks.ravel().tolist()) == list(range(mesh.world))
        for rank in (0, mesh.world // 2, mesh.world - 1):
            assert grid.ranks[grid.place_of(rank)] == rank
            at = grid.row_at(grid.place_of(rank)[0]) | grid.column_at(grid.place_of(rank)[1])
            assert at.items() <= mesh.coordinates(rank).items()


def test_on_a_small_screen_a_cell_is_a_whole_group_of_the_innermost_axis() -> None:
    grid = first_grid(LARGE)
    frame = frame_for(grid, Part.whole(grid), 16, 70)
    assert (frame.columns_a_cell, frame.cells, frame.lines, frame.width) == (8, 64, 16, 64)


def test_where_there_is_room_each_rank_has_a_cell() -> None:
    mesh = Mesh.parse("pp=4,tp=8")
    grid = first_grid(mesh)
    frame = frame_for(grid, Part.whole(grid), 20, 150)
    assert (frame.rows_a_cell, frame.columns_a_cell, frame.cell_width, frame.cell_height) == (1, 1, 12, 3)


def test_a_long_row_goes_on_over_several_lines() -> None:
    grid = first_grid(Mesh.parse("dp=8192"))
    frame = frame_for(grid, Part.whole(grid), 16, 128)
    assert (frame.down, frame.columns_a_cell, frame.wraps, frame.across) == (1, 4, 16, 128)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    lines=st.integers(1, 40),
    width=st.integers(1, 120),
    data=st.data(),
)
def test_cells_hold_every_rank_once_and_fit(sizes: list[int], lines: int, width: int, data: st.DataObject) -> None:
    mesh = Mesh.parse(",".join(f"a{number}={size}" for number, size in enumerate(sizes)))
    grid = data.draw(st.sampled_from(grids(mesh)))
    row = data.draw(st.integers(0, grid.shape[0] - 1))
    column = data.draw(st.integers(0, grid.shape[1] - 1))
    part = Part(row, column, grid.shape[0] - row, grid.shape[1] - column)
    values = np.random.default_rng(0).integers(0, 1000, mesh.world)
    frame = frame_for(grid, part, lines, width)
    assert frame.lines <= lines and frame.width <= width
    folded = fold(grid, part, frame, values, frozenset({0}), Fold.MOST)
    seen: list[int] = []
    for cell in np.ndindex(frame.down, frame.cells):
        ranks = folded.ranks_in(cell)
        seen += ranks.tolist()
        assert folded.values[cell] == values[ranks].max()
        assert folded.ran[cell] == (0 in ranks)
        assert folded.cell_of(folded.place_of(cell)) == cell
        assert frame.cell_on(*frame.corner(cell)) == cell
    assert sorted(seen) == sorted(grid.ranks[row:, column:].ravel().tolist())


@pytest.mark.parametrize(("how", "expected"), [(Fold.MOST, 3.0), (Fold.MEAN, 1.5), (Fold.LEAST, 0.0)])
def test_a_cell_shows_the_most_the_mean_or_the_least(how: Fold, expected: float) -> None:
    grid = Grid(mesh=Mesh.parse("dp=2,tp=4"), rows=("dp",), columns=("tp",))
    frame = frame_for(grid, Part.whole(grid), 2, 1)
    assert fold(grid, Part.whole(grid), frame, np.arange(8), frozenset(), how).values[0, 0] == expected


def test_zooming_keeps_the_place_inside() -> None:
    grid = first_grid(LARGE)
    part = Part.whole(grid)
    for _ in range(9):
        part = part.narrowed(grid, (15, 511), rows=True, columns=True)
        assert part.row + part.rows == 16 and part.column + part.columns == 512
    assert (part.rows, part.columns) == (1, 1)
    for _ in range(9):
        part = part.widened(grid, (15, 511))
    assert part == Part.whole(grid)
    assert Part(0, 0, 4, 64).showing(grid, (5, 70)) == Part(2, 7, 4, 64)


def test_a_scale_of_levels_as_wide_or_with_as_many_ranks() -> None:
    values = np.array([0] * 100 + [10] * 100 + [1000])
    wide, even = Scale.of(values, even=False), Scale.of(values, even=True)
    assert (wide.level(0), wide.level(10), wide.level(1000)) == (0, 0, LEVELS - 1)
    assert even.level(10) > LEVELS // 3 and even.level(1000) == LEVELS - 1
    assert wide.middle == 500 and even.middle <= 10
    assert Scale.of(np.full(3, 7), even=False).level(7) == 0
    assert Scale.of(np.zeros(0, dtype=np.int64), even=True).level(7) == 0
