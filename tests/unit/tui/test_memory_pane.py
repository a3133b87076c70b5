"""The memory pane: its curve, its keys, and what it says where there is no trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from played import PlayedRank, screen_of, until
from prismdbg_tui.app import PrismApp
from prismdbg_tui.curve_drawing import CurveInk, cell_of, draw_curve, point_of
from prismdbg_tui.memory_view import CurveView, GroupBy, MemoryNode, MemoryView
from prismdbg_tui.messages import MemoryLooked
from textual.pilot import Pilot

from prismdbg.model.moment import Moment

INK = CurveInk(background="#000000", line="#0000ff", peak="#ff0000", accent="#ffff00", quiet="#888888")


def curve(points: int = 100, peak: int = 37) -> CurveView:
    high = tuple(1000 if point == peak else 100 for point in range(points))
    moments = tuple(Moment(point // 10, point % 10 + 1) for point in range(points))
    steps = tuple((step, step * 10) for step in range(points // 10))
    return CurveView(low_bytes=(0,) * points, high_bytes=high, steps=steps, moments=moments, peak=peak, here=60)


@pytest.mark.parametrize("width", [30, 60, 200])
def test_no_width_loses_the_peak(width: int) -> None:
    lines = draw_curve(curve(), width, 6, INK).plain.splitlines()
    assert len(lines) == 6 and all(len(line) <= width for line in lines)
    top = lines[1][10:]
    assert top.count("█") >= 1 and "█" in top[cell_of(37, curve(), width - 10)]
    assert "1000 B" in lines[1] and "▼" in lines[0]


def test_cells_and_points_belong_together() -> None:
    some = curve(1000)
    for point in (0, 499, 999):
        assert abs(point_of(cell_of(point, some, 80), some, 80) - point) <= 1000 // 80 + 1


def test_it_says_how_to_get_a_trace(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("v")
        await until(lambda: "trace on" in app.panes.memory.shown.note, pilot)
        assert app.panes.memory.display and not app.panes.collectives.display

    screen_of(part, tmp_path, PlayedRank())


def test_a_view_is_shown_as_a_tree_and_keys_change_it(tmp_path: Path) -> None:
    leaf = MemoryNode(label="aten::mm at model.py:3 in forward", size_bytes=600, blocks=2)
    node = MemoryNode(label="model.layers.0", size_bytes=1000, blocks=3, children=(leaf,))
    view = MemoryView(at=Moment(1, 1), curve=curve(), program_bytes=1000, nodes=(node,), by=GroupBy.MODULE)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("v")
        app.post_message(MemoryLooked(view))
        await until(lambda: app.panes.memory.shown is view, pilot)
        (branch,) = app.panes.memory.blocks.root.children
        assert "model.layers.0" in str(branch.label) and "aten::mm" in str(branch.children[0].label)
        await pilot.press("i")
        assert app.glance.memory.by is GroupBy.MODULE
        await pilot.press("g", "x", "G")
        assert app.glance.memory.since == Moment(0, 1)
        await pilot.press("x")
        assert app.glance.memory.since is None

    screen_of(part, tmp_path, PlayedRank())
