"""The memory pane: its curve, its keys, and what it says where there is no trace."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from capsules import make_capsule
from hypothesis import given
from hypothesis import strategies as st
from played import MANIFEST, PlayedRank, live_over, screen_of, screen_of_app, small_capsule, stopped, until
from prismdbg_tui.drawing import figures
from prismdbg_tui.memory.bars_drawing import bar_at, draw_bars
from prismdbg_tui.memory.choices import MemoryChoices, MemoryPlace
from prismdbg_tui.memory.curve_drawing import LABEL, CurveInk, begins_of, cell_of, draw_curve, point_of
from prismdbg_tui.memory.reader import MemoryReader, MemoryRequest
from prismdbg_tui.memory.squares import squares
from prismdbg_tui.memory.treemap_drawing import MapInk, draw_map, name_in, node_at, placed_groups
from prismdbg_tui.memory.treemap_walk import Areas, Side
from prismdbg_tui.memory.view import CurveView, GroupBy, MemoryNode, MemoryView
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.messages import MemoryRead, StateChanged
from prismdbg_tui.session.reader import CapsuleReader
from prismdbg_tui.session.views import Phase
from shown import on_screen, told
from textual.app import ScreenStackError
from textual.pilot import Pilot
from traces import TraceBuilder

from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.errors import UsageError
from prismdbg.model.breakpoints import StopReason
from prismdbg.model.collective import Frame
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
    assert top.count("█") >= 1 and "█" in top[cell_of(37, begins_of(curve(), width - 10))]
    assert "1000 B" in lines[1] and "▼" in lines[0]


def test_cells_and_points_belong_together() -> None:
    begins = begins_of(curve(1000), 80)
    for point in (0, 499, 999):
        assert abs(point_of(cell_of(point, begins), begins) - point) < 20, "of 100 steps in 80 cells, each has two"


@pytest.mark.parametrize("width", range(40, 140, 7))
def test_steps_that_are_alike_look_alike_at_any_width(width: int) -> None:
    high = tuple(1000 if point % 10 < 3 else 100 for point in range(200))
    steps = tuple((step, step * 10) for step in range(20))
    some = replace(curve(200), high_bytes=high, steps=steps, here=199)
    top = draw_curve(some, width, 6, INK).plain.splitlines()[1][LABEL:].rstrip(" ┃")
    assert len(set(re.findall("█+ *", f"{top} "))) <= 3, top


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
        app.post_message(MemoryRead(view))
        await until(lambda: app.panes.memory.shown is view, pilot)
        (branch,) = app.panes.memory.blocks.root.children
        assert "model.layers.0" in str(branch.label) and "aten::mm" in str(branch.children[0].label)
        await pilot.press("i")
        assert app.views.memory.by is GroupBy.MODULE

    screen_of(part, tmp_path, PlayedRank())


def test_a_trace_that_is_read_when_the_screen_has_been_left_ends_nothing_with_an_error() -> None:
    class LeftScreen:
        screen_stack = ()
        layout = SimpleNamespace(pane="memory")
        views = SimpleNamespace(memory_read=lambda _: None)

        @property
        def focused(self) -> None:
            raise ScreenStackError("No screens on stack")

    PrismApp.on_memory_read(cast(Any, LeftScreen()), MemoryRead(MemoryView()))


@pytest.fixture
def whole_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That `record --memory` left: of all collectives of a small capsule."""
    made = TraceBuilder(tmp_path / "whole-trace")
    for moment in (Moment(0, 0, 1), *(Moment(step, 1, 1) for step in range(30))):
        made.now = moment
        made.allocate(100, "aten::clone")
    folder = made.write()
    monkeypatch.setattr(CapsuleReader, "trace", folder)
    return folder


def test_an_older_look_that_took_longer_is_not_shown(tmp_path: Path) -> None:
    asked, newer_is_shown, heard = list[int](), threading.Event(), list[str]()

    def look(_reader: MemoryReader, _request: MemoryRequest) -> MemoryView:
        asked.append(len(asked))
        if asked[-1]:
            return MemoryView(note="newer")
        assert newer_is_shown.wait(20)
        return MemoryView(note="older")

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.is_settled, pilot)
        show = app.panes.memory.show
        app.panes.memory.show = lambda view: (heard.append(view.note), show(view))[1]  # type: ignore[method-assign]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryReader, "look", look)
            for count in (1, 2):
                app.views._look_at_trace()
                await until(lambda count=count: len(asked) == count, pilot)  # type: ignore[misc]
            await until(lambda: "newer" in heard, pilot)
            told_of, hear = list[MemoryRead](), app.views.memory_read
            app.views.memory_read = lambda message: (told_of.append(message), hear(message))[1]  # type: ignore[method-assign]
            newer_is_shown.set()
            await until(lambda: told_of, pilot)
        assert heard == ["newer"]

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)


@pytest.mark.usefixtures("whole_trace")
def test_both_ends_of_a_difference_stay_where_they_were_chosen(tmp_path: Path) -> None:
    """The other end was wherever the cursor went: to move on changed what was compared."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        memory = app.views.memory

        def asked() -> MemoryRequest:
            return memory.request(tmp_path, app.views.memory_place)

        await pilot.press("1", "g", "x")
        assert memory.marked == Moment(0, 1)
        await until(lambda: "0.1 is marked; x at another collective compares with it" in on_screen(app), pilot)
        await pilot.press("down")
        assert (asked().since, asked().marked) == (None, Moment(0, 1)), "nothing is compared yet"
        await pilot.press("x")
        between = asked()
        assert (between.since, between.at, between.marked) == (Moment(0, 1), Moment(0, 2), None)
        await until(lambda: "memory: difference between 0.1 and 0.2" in on_screen(app), pilot)
        await pilot.press("G")
        assert asked() == between, "that the cursor goes on changes nothing"
        assert "difference between" not in on_screen(app) and not told(app)
        await pilot.press("x")
        assert (asked().since, asked().marked, asked().at) == (None, None, app.position.moment)
        await pilot.press("X")
        last = app.position.moment
        assert (asked().since, asked().at) == (Moment(last.step - 1, last.collective), last)
        await pilot.press("g")
        assert (asked().since, asked().at) == (Moment(last.step - 1, last.collective), last)
        await pilot.press("x", "x", "x")
        assert asked().since is None and memory.marked is None, "twice at the same place: none"

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)


@pytest.mark.parametrize(
    ("live", "says"),
    [
        (True, "✕ no memory trace at 1.1 · try: press M to trace it"),
        (False, "✕ no memory trace at 1.1 · try: record with --memory, or `prismdbg debug`"),
    ],
)
@pytest.mark.parametrize("key", ["x", "X"])
def test_without_a_trace_nothing_is_marked_and_the_status_line_says_what_to_do(
    tmp_path: Path, live: bool, says: str, key: str
) -> None:
    """It said that the moment was marked, and compared nothing with nothing."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.recording is not None and app.is_settled, pilot)
        await pilot.press("1")
        app.navigation.go_to(Moment(1, 1))
        await pilot.press(key)
        await until(lambda: says in " ".join(on_screen(app).split()), pilot)
        assert (app.views.memory.marked, app.views.memory.compared) == (None, None) and told(app) == []
        await pilot.press("down")
        if not live:
            await pilot.press("v")
            await until(lambda: "`prismdbg debug`" in app.panes.memory.shown.note, pilot)

    if live:
        screen_of(part, tmp_path, PlayedRank(), size=(80, 24))
    else:
        screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part, size=(80, 24))


def test_while_the_rank_runs_a_refusal_is_no_error_that_is_shown_afterwards(tmp_path: Path) -> None:
    rank = PlayedRank([])
    rank.answers["pause"] = lambda _: rank.tell(stopped("0.2", 2, "paused")) or {}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("c")
        await until(lambda: app.state.phase is Phase.RUNNING, pilot)
        await pilot.press("x")
        await until(lambda: "".join(told(app)[-1:]).endswith("\ntry: press M to trace it"), pilot)
        await pilot.press("escape")
        await until(lambda: app.state.phase is Phase.STOPPED and "paused" in on_screen(app), pilot)
        assert app.views.memory.marked is None

    screen_of(part, tmp_path, rank)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_moment_that_the_trace_lacks_is_no_end_of_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    made = TraceBuilder(tmp_path / "late-trace", now=Moment(1, 1))
    made.before(1000)
    monkeypatch.setattr(CapsuleReader, "trace", made.write())

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press(*(["v"] if is_seen else ["1"]))
        if is_seen:
            await until(lambda: app.panes.memory.shown.curve is not None, pilot)
        app.navigation.go_to(Moment(0, 1))
        await pilot.press("x")
        says = "memory: 0.1 is outside the trace, which goes from 1.1 to 1.1 · try: give a moment of the trace"
        await until(lambda: says in on_screen(app), pilot)
        assert app.views.memory.marked is None and app.panes.memory.shown.marked is None and told(app) == []
        app.navigation.go_to(Moment(1, 1))
        await pilot.press("x")
        await until(lambda: app.panes.memory.shown.marked == Moment(1, 1), pilot)
        assert says not in on_screen(app) and app.views.memory.marked == Moment(1, 1)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)


@pytest.mark.usefixtures("whole_trace")
def test_an_end_of_a_difference_is_where_the_rank_stands(tmp_path: Path) -> None:
    """Which may be before the collective under the cursor."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED and app.cursor == app.here, pilot)
        await pilot.press("x")
        await until(lambda: app.panes.memory.shown.marked is not None, pilot)
        assert app.views.memory.marked == app.state.moment != app.position.moment

    screen_of(part, tmp_path, PlayedRank())


def test_the_pane_says_which_two_moments_are_compared(tmp_path: Path, trace: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        note = lambda: str(app.panes.memory.note.render())  # noqa: E731
        await pilot.press("v")
        await until(lambda: "trace on" in app.panes.memory.shown.note, pilot)
        app.panes.memory.show(looked(trace, Moment(1, 1), since=Moment(2, 3)))
        assert note() == "difference between 1.1 and 2.3: at most +200 B · x: all live memory"
        request = MemoryRequest(
            folder=trace, at=Moment(1, 1), look=Moment(1, 1), since=None, by=GroupBy.OP, marked=Moment(0, 2)
        )
        view = MemoryReader().look(request)
        assert view.curve is not None and view.curve.mark is not None
        app.panes.memory.show(view)
        assert "live at 1.1 · 0.2 is marked: x at another collective compares with it" in note()

    screen_of(part, tmp_path, PlayedRank())


LEAVES = tuple(MemoryNode(label=f"aten::mm at m.py:{n}", size_bytes=100 * n, blocks=1) for n in (4, 2))
NODES = (
    MemoryNode(label="layers.0", size_bytes=600, blocks=2, children=LEAVES),
    MemoryNode(label="head", size_bytes=300, blocks=1),
    MemoryNode(label="before start moment", size_bytes=90, blocks=1, quiet=True),
    MemoryNode(label="crumbs", size_bytes=1, blocks=1),
)
MAP_INK = MapInk(
    background="#000000", block="#0000ff", quiet="#888888", more="#ff0000", less="#00ff00", chosen="#ffff00"
)


@given(
    shares=st.lists(st.integers(0, 10**12), max_size=30),
    width=st.integers(0, 120),
    height=st.integers(0, 60),
)
def test_areas_fill_the_pane_and_do_not_overlap(shares: list[int], width: int, height: int) -> None:
    shares.sort(reverse=True)
    boxes = squares(shares, width, height)
    assert len(boxes) == len(shares)
    covered = [0] * (width * height)
    for box in boxes:
        assert box.x >= 0 and box.y >= 0 and box.x + box.width <= width and box.y + box.height <= height
        for y in range(box.y, box.y + box.height):
            for x in range(box.x, box.x + box.width):
                covered[y * width + x] += 1
    assert set(covered) <= ({1} if sum(shares) else {0})


@pytest.mark.parametrize(("width", "height"), [(78, 8), (20, 3), (1, 1), (160, 40)])
def test_a_treemap_is_as_large_as_its_pane(width: int, height: int) -> None:
    lines = draw_map(NODES, width, height, MAP_INK, signed=False).plain.split("\n")
    assert [len(line) for line in lines] == [width] * height


def test_a_treemap_names_its_areas_also_without_colour() -> None:
    shown = draw_map(NODES, 78, 12, MAP_INK, signed=False).plain
    assert all(word in shown for word in ("600 B layers.0", "300 B head", "400 B aten::mm at m.py:4"))
    assert node_at(NODES, 78, 12, 3, 0) is NODES[0]
    assert node_at(NODES, 78, 12, 3, 3) in LEAVES
    gone = draw_map((replace(NODES[1], size_bytes=-300), NODES[0]), 60, 8, MAP_INK, signed=True).plain
    assert "+600 B layers.0" in gone and "-300 B head" in gone


def test_a_small_area_has_a_whole_size_or_none() -> None:
    nodes = tuple(MemoryNode(label="aten::mm at m.py:4", size_bytes=size, blocks=1) for size in (9000, 900, 300, 20, 5))
    for width, height in ((90, 12), (40, 6), (30, 30)):
        shown = draw_map(nodes, width, height, MAP_INK, signed=False, chosen=nodes[4]).plain
        assert [len(line) for line in shown.split("\n")] == [width] * height
        assert re.findall(r"\d+(?:\.\d)? ?…|(?<!\S)…", shown) == []


@pytest.mark.parametrize(
    ("label", "width", "height", "shown"),
    [
        ("module.blocks.3.mlp", 22, 1, ["600 B …blocks.3.mlp"]),
        ("module.blocks.3.mlp", 14, 1, ["600 B …3.mlp"]),
        ("module.blocks.3.mlp", 11, 3, ["600 B", "…3.mlp"]),
        ("module.blocks.3.mlp", 9, 1, ["600 B"]),
        ("aten::mm in module.blocks.3.mlp", 14, 3, ["600 B", "aten::mm in", "…blocks.3.mlp"]),
        ("aten::empty at adam.py:120", 20, 1, ["600 B aten::empty …"]),
        ("aten::empty at adam.py:120", 15, 1, ["600 B"]),
        ("aten::empty at adam.py:120", 12, 2, ["600 B", "aten::empt…"]),
        ("aten::empty at adam.py:120", 8, 4, ["600 B"]),
    ],
)
def test_of_a_modules_name_an_area_shows_the_end_and_of_others_enough_to_read(
    label: str, width: int, height: int, shown: list[str]
) -> None:
    """Five areas were `module.b…`, others `all…`. The last column and line of an area are its gap."""
    node = MemoryNode(label=label, size_bytes=600, blocks=1)
    lines = draw_map((node,), width, height + 1, MAP_INK, signed=False).plain.split("\n")
    assert [line.rstrip() for line in lines if line.strip()] == shown


def test_an_area_that_has_no_room_for_its_name_beside_its_size_has_it_below() -> None:
    """Its parts, of which no name could be read, took that room."""
    parts = tuple(MemoryNode(label=f"aten::mm at m.py:{n}", size_bytes=300, blocks=1) for n in range(2))
    node = MemoryNode(label="module.blocks.3.dropout", size_bytes=600, blocks=2, children=parts)
    lines = draw_map((node,), 16, 8, MAP_INK, signed=False).plain.split("\n")
    assert [line.strip() for line in lines if line.strip()] == ["600 B", "…3.dropout"]


@pytest.mark.parametrize("height", [1, 3, 10])
def test_bars_have_one_line_each_and_show_the_chosen_one(height: int) -> None:
    for chosen in NODES:
        shown = draw_bars(NODES, 60, height, MAP_INK, signed=False, chosen=chosen).plain.split("\n")
        assert len(shown) == min(height, len(NODES)) and all(len(line) == 60 for line in shown)
        (marked,) = [at for at, line in enumerate(shown) if line.startswith("▶")]
        assert chosen.label in shown[marked] and bar_at(NODES, height, marked, chosen) is chosen
    assert bar_at(NODES, 10, 4, None) is None
    whole = draw_bars(NODES, 60, 10, MAP_INK, signed=False).plain.split("\n")
    assert whole[0] == "       600 B  61%  layers.0".ljust(58) + " ›" and whole[1].rstrip() == "       300 B  30%  head"
    gone = draw_bars((replace(NODES[1], size_bytes=-300), NODES[0]), 60, 8, MAP_INK, signed=True).plain
    assert "+600 B  layers.0" in gone and "-300 B  head" in gone


def test_what_is_there_is_never_no_share_and_a_part_has_the_scale_of_its_group(tmp_path: Path) -> None:
    part = MemoryNode(label="aten::mm", size_bytes=998, blocks=1)
    nodes = (
        MemoryNode(label="layers.0", size_bytes=998, blocks=1, children=(part,)),
        MemoryNode(label="crumb", size_bytes=2, blocks=1),
    )
    view = MemoryView(at=Moment(1, 1), curve=curve(), program_bytes=1000, nodes=nodes)

    async def part_of(app: PrismApp, pilot: Pilot[int]) -> None:
        memory = app.panes.memory
        await pilot.press("v")
        await until(lambda: "trace on" in memory.shown.note, pilot)
        memory.show(view)
        group, crumb = memory.blocks.root.children
        assert str(group.label).count("█") == str(group.children[0].label).count("█") == 6
        assert " <1% crumb" in str(crumb.label) and "  0%" not in str(crumb.label)
        assert str(memory.border_subtitle) == "by stack · size, blocks"

    screen_of(part_of, tmp_path, PlayedRank(), size=(80, 24))
    shown = draw_bars(nodes, 60, 2, MAP_INK, signed=False).plain.split("\n")
    assert "  <1%  crumb" in shown[1]


def test_a_bar_names_both_ends_of_a_stack() -> None:
    """Its last frame alone does not say whose memory it is."""
    stack = " < ".join(["model.py:53 in forward", *(f"model.py:{line}" for line in range(60, 70)), "train.py:67"])
    node = MemoryNode(label=stack, size_bytes=1 << 20, blocks=1)
    (line,) = draw_bars([node], 76, 1, MAP_INK, signed=True).plain.splitlines()
    assert "model.py:53 in forward" in line and "train.py:67" in line and len(line) == 76


@pytest.mark.parametrize(("size", "has_areas"), [((80, 24), False), ((120, 36), False), ((160, 45), True)])
def test_in_a_small_pane_areas_are_bars(tmp_path: Path, size: tuple[int, int], has_areas: bool) -> None:
    """At 80x24 a treemap was a row of cut numbers."""
    view = MemoryView(at=Moment(1, 1), curve=curve(), program_bytes=1000, nodes=NODES)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        memory = app.panes.memory

        async def says(text: str) -> None:
            await until(lambda: str(memory.border_subtitle) == text, pilot)

        await pilot.press("v")
        await until(lambda: "trace on" in memory.shown.note, pilot)
        app.post_message(MemoryRead(view))
        await until(lambda: memory.shown is view, pilot)
        await pilot.press("e")
        await until(lambda: "▶" in str(memory.map.visual) and memory.map.has_areas is has_areas, pilot)
        if has_areas:
            return
        assert "600 B  61%  layers.0" in str(memory.map.visual)
        memory.map.focus()
        await pilot.press("down")
        await says("300 B head")
        await pilot.press("up", "up", "right")
        await says("layers.0 › 400 B aten::mm at m.py:4")
        await pilot.press("down", "down")
        await says("layers.0 › 200 B aten::mm at m.py:2")
        await pilot.press("left")
        await says("600 B layers.0")
        await pilot.click(memory.map, offset=(2, 1))
        await says("300 B head")
        await pilot.click(memory.map, offset=(2, 0), times=2)
        await says("layers.0 › 400 B aten::mm at m.py:4")

    screen_of(part, tmp_path, PlayedRank(), size=size)


@pytest.mark.usefixtures("whole_trace")
def test_a_key_shows_areas_and_another_what_leaked_over_a_step(tmp_path: Path) -> None:
    view = MemoryView(at=Moment(1, 1), curve=curve(), program_bytes=1000, nodes=NODES)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("v")
        app.post_message(MemoryRead(view))
        await until(lambda: app.panes.memory.shown is view, pilot)
        memory = app.panes.memory
        await pilot.press("e")
        await until(lambda: memory.map.display and "layers.0" in str(memory.map.visual), pilot)
        assert not memory.blocks.display
        await pilot.click(memory.map, offset=(2, 0))
        await until(lambda: "600 B layers.0" in str(memory.border_subtitle), pilot)
        await pilot.press("e")
        assert memory.blocks.display and not memory.map.display
        await pilot.press("G", "X")
        assert app.views.memory.compared is not None
        await pilot.press("x", "g", "X")
        assert app.views.memory.compared is None, "the first step has none before it"

    screen_of(part, tmp_path, PlayedRank())


@pytest.mark.usefixtures("whole_trace")
def test_a_pane_that_was_chosen_before_it_had_anything_gets_the_keys_then(tmp_path: Path) -> None:
    view = MemoryView(at=Moment(1, 1), curve=curve(), program_bytes=1000, nodes=NODES)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("v", "z")
        app.screen.set_focus(None)  # as where its blocks were not shown yet
        app.post_message(MemoryRead(view))
        await until(lambda: app.focused is app.panes.memory.blocks, pilot)

    screen_of(part, tmp_path, PlayedRank())


@pytest.mark.parametrize(("incident_at", "look"), [(Moment(1, 1), None), (Moment(2, 2), Moment(1, 1))])
def test_at_the_exception_that_ended_the_recorded_job_the_recorded_trace_ends_there(
    tmp_path: Path, incident_at: Moment, look: Moment | None
) -> None:
    """It showed the memory of the collective before, beside an exception that told of more. An exception elsewhere
    does not lie at that trace's end."""
    incident = Incident(kind=IncidentKind.OUT_OF_MEMORY, text="out of memory", moment=incident_at)
    capsule = make_capsule(tmp_path / "capsule", replace(MANIFEST, incident=incident))
    app = PrismApp(capsule, "capsule", live=live_over(capsule, PlayedRank()))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.recording is not None and app.state.phase is Phase.STOPPED, pilot)
        raised = replace(app.state, moment=Moment(1, 1), reason=StopReason.EXCEPTION, can_look=True)
        app.post_message(StateChanged(raised))
        await until(lambda: app.state.reason == StopReason.EXCEPTION and app.views.at_rank, pilot)
        assert app.views.memory_place == MemoryPlace(Moment(1, 1), look)

    screen_of_app(app, part)


def test_while_the_rank_is_traced_up_to_where_it_stood_that_is_the_place(tmp_path: Path) -> None:
    """The pane showed the memory of the collective under the cursor, for a moment."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.recording is not None and app.state.phase is Phase.STOPPED, pilot)
        between = replace(app.state, moment=Moment(1, 1, 5))
        for phase in (Phase.STOPPED, Phase.RUNNING):
            app.post_message(StateChanged(replace(between, phase=phase)))
            await until(lambda phase=phase: app.state.phase is phase, pilot)  # type: ignore[misc]
            place = app.views.memory_place
            assert place is not None and place.at == Moment(1, 1, 5)

    screen_of(part, tmp_path, PlayedRank())


@given(
    shares=st.lists(st.integers(1, 10**9), min_size=1, max_size=40),
    width=st.integers(1, 160),
    height=st.integers(1, 60),
)
def test_keys_lead_to_every_area_that_can_be_seen(shares: list[int], width: int, height: int) -> None:
    nodes = tuple(MemoryNode(label=str(n), size_bytes=share, blocks=1) for n, share in enumerate(shares))
    placed = placed_groups(nodes, width, height)
    reached, ahead = set[str](), [placed[0].node]
    while ahead:
        at = ahead.pop()
        reached.add(at.label)
        found = [Areas(groups=nodes, at=at).towards(side, width, height).at for side in Side]
        ahead += [node for node in found if node is not None and node.label not in reached]
    assert reached == {one.node.label for one in placed}


def test_a_place_among_areas_is_kept_by_its_names() -> None:
    areas = Areas(groups=NODES)
    assert areas.chosen is NODES[0], "the largest"
    inside = areas.opened()
    assert inside.shown is LEAVES and inside.chosen is LEAVES[0]
    later = inside.of((replace(NODES[0], size_bytes=900), NODES[1]))
    assert later.inside is not None and later.inside.size_bytes == 900
    assert inside.of((NODES[1],)) == Areas(groups=(NODES[1],)), "it is gone"
    assert inside.closed().chosen is NODES[0]
    for refused in (areas.closed, Areas().opened, replace(areas, at=NODES[1]).opened):
        with pytest.raises(UsageError):
            refused()


def test_keys_walk_the_areas(tmp_path: Path) -> None:
    view = MemoryView(at=Moment(1, 1), curve=curve(), program_bytes=1000, nodes=NODES)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        memory = app.panes.memory

        async def says(text: str) -> None:
            await until(lambda: str(memory.border_subtitle) == text, pilot)

        await pilot.press("G", "v")
        await until(lambda: "trace on" in memory.shown.note, pilot)  # it has looked
        app.post_message(MemoryRead(view))
        await until(lambda: memory.shown is view, pilot)
        cursor = app.cursor
        await pilot.press("e")
        await until(lambda: "▶ 600 B layers.0" in str(memory.map.visual), pilot)
        memory.map.focus()
        await pilot.press("right")
        await says("300 B head")
        await until(lambda: "▶ 300 B head" in str(memory.map.visual), pilot)
        await pilot.press("enter")
        await until(lambda: any("contains no smaller ones" in note for note in told(app)), pilot)
        await pilot.press("left")
        await says("600 B layers.0")
        await pilot.press("enter")
        await says("layers.0 › 400 B aten::mm at m.py:4")
        assert "head" not in str(memory.map.visual)
        await pilot.press("right", "down")
        await says("layers.0 › 200 B aten::mm at m.py:2")
        await pilot.press("backspace")
        await says("600 B layers.0")
        await pilot.click(memory.map, offset=(2, 0), times=2)
        await says("layers.0 › 400 B aten::mm at m.py:4")
        assert app.cursor == cursor, "these keys are the pane's here"
        await pilot.press("escape", "left")
        assert app.cursor == cursor - 1

    screen_of(part, tmp_path, PlayedRank())


def test_keys_for_areas_are_refused_where_none_are_shown(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        app.act("area_open")
        await until(lambda: any("not in the treemap: press e to show it" in note for note in told(app)), pilot)

    screen_of(part, tmp_path, PlayedRank())


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A model from before, activations that come and go, a leak of a hundred bytes a step."""
    forward, leak = (Frame("/job/model.py", 61, "forward"),), (Frame("/job/train.py", 9, "main"),)
    made = TraceBuilder(tmp_path / "trace")
    made.before(1000)
    for step in range(3):
        made.now = Moment(step, 1, 2)
        block = made.allocate(500 if step != 1 else 5000, "aten::mm", module="layers.0", frames=forward)
        made.now = Moment(step, 1, 7)
        made.allocate(100, "aten::clone", frames=leak)
        made.now = Moment(step, 2)
        made.free(block)
    return made.write()


def looked(
    folder: Path | None, at: Moment | None, since: Moment | None = None, by: GroupBy = GroupBy.STACK
) -> MemoryView:
    return MemoryReader().look(MemoryRequest(folder=folder, at=at, look=at, since=since, by=by))


def test_a_trace_is_looked_at_by_moment(trace: Path) -> None:
    view = looked(trace, Moment(1, 2))
    assert view.program_bytes == 6200 and view.before_bytes == 1000
    assert (view.peak_bytes, view.peak_text) == (6200, "aten::clone at train.py:9 in main")
    labels = [(node.label, node.size_bytes, node.quiet) for node in view.nodes]
    assert labels == [
        ("model.py:61 in forward", 5000, False),
        ("before start moment", 1000, True),
        ("train.py:9 in main", 200, False),
    ]
    assert view.nodes[0].children[0].label == "aten::mm in layers.0"


@pytest.mark.parametrize(
    ("by", "first"),
    [(GroupBy.MODULE, "layers.0"), (GroupBy.OP, "aten::mm"), (GroupBy.SIZE, "5000 bytes each"),
     (GroupBy.AGE, "allocated in this step")],
)  # fmt: skip
def test_a_key_puts_blocks_together_otherwise(trace: Path, by: GroupBy, first: str) -> None:
    assert looked(trace, Moment(1, 2), by=by).nodes[0].label == first


def test_a_moment_that_the_trace_lacks_is_not_given_its_numbers(trace: Path) -> None:
    """What lives at the trace's end was told of collectives that the rank had not come to."""
    behind = looked(trace, Moment(30, 1))
    assert (behind.at, behind.program_bytes) == (Moment(2, 2), 1300)


def test_of_a_refused_difference_the_end_that_the_trace_has_stays_marked(trace: Path) -> None:
    refused = looked(trace, Moment(30, 1), since=Moment(1, 1))
    assert "30.1 is outside the trace" in refused.refused and refused.marked == Moment(1, 1)
    refused = looked(trace, Moment(1, 1), since=Moment(30, 1))
    assert "30.1 is outside the trace" in refused.refused and refused.marked is None


def test_what_leaked_between_two_moments(trace: Path) -> None:
    view = looked(trace, Moment(1, 1), since=Moment(2, 3))
    assert (view.since, view.at, view.growth_bytes) == (Moment(1, 1), Moment(2, 3), 200)
    assert [(node.label, node.size_bytes) for node in view.nodes] == [("train.py:9 in main", 200)]


def test_what_is_no_trace_is_said(tmp_path: Path) -> None:
    assert "trace on" in looked(None, None).note
    assert "no memory trace" in looked(tmp_path, None).note


def test_an_exception_lies_behind_the_collective_that_it_is_told_with(trace: Path) -> None:
    """The rank stands at the trace's end: what lives there is told, by that moment."""
    view = MemoryReader().look(MemoryRequest(folder=trace, at=Moment(1), look=None, since=None, by=GroupBy.STACK))
    assert (view.at, view.program_bytes) == (Moment(2, 2), 1300)
    at_collective = looked(trace, Moment(1))
    assert (at_collective.at, at_collective.program_bytes) == (Moment(1), 1100)


def test_a_step_before_an_exception_is_the_same_place_of_that_step(trace: Path) -> None:
    """It was compared with that step's first collective, under a title that named both by their collectives."""
    choices = MemoryChoices(lambda: None)
    choices.compare_with_a_step_before(MemoryPlace(Moment(2, 2), None))
    view = MemoryReader().look(choices.request(trace, None))
    end = MemoryReader().look(MemoryRequest(folder=trace, at=Moment(2, 2), look=None, since=None, by=GroupBy.STACK)).at
    assert end is not None and (view.since, view.at) == (Moment(1, 2, end.op), end)
    choices.compare_with_a_step_before(MemoryPlace(Moment(2, 2, 7), Moment(2, 2, 7)))
    assert choices.request(trace, None).since == Moment(1, 2, 7), "also between two collectives"
    choices.forget()
    choices.mark(MemoryPlace(Moment(1, 2), Moment(1, 2)))
    choices.mark(MemoryPlace(Moment(2, 2), None))
    assert MemoryReader().look(choices.request(trace, None)).since == Moment(1, 2), "a chosen end stays as it is"


def test_a_trace_of_a_captured_rank_is_known_in_part(tmp_path: Path) -> None:
    made = TraceBuilder(tmp_path / "trace", now=Moment(7), from_start=False)
    made.before(1000)
    made.now = Moment(7, 1, 2)
    made.allocate(500, "aten::mm")
    view = looked(made.write(), Moment(7, 2))
    assert (view.program_bytes, view.is_least, view.uncounted_bytes) == (1500, True, None)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("v")
        await until(lambda: "trace on" in app.panes.memory.shown.note, pilot)
        for bound, said in ((None, "without blocks held only by C++"), (3 << 20, "held only by C++ (at most 3.0 MiB)")):
            shown = replace(view, uncounted_bytes=bound)
            app.post_message(MemoryRead(shown))
            await until(lambda shown=shown: app.panes.memory.shown is shown, pilot)  # type: ignore[misc]
            text = str(app.panes.memory.note.visual)
            assert (
                "at least 1.5 KiB live at 7.1.2" in text and "1000 B before the start moment" in text and said in text
            )

    screen_of(part, tmp_path, PlayedRank())


def test_a_trace_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "memory.00000.seg")
    assert "no memory trace" in looked(tmp_path, Moment(1)).note
    (tmp_path / "memory.00000.seg").unlink()
    (tmp_path / "memory.00000.seg").write_bytes(b"")
    os.mkfifo(tmp_path / "memory.00001.seg")
    assert looked(tmp_path, Moment(1)).note != ""


def test_of_several_devices_the_pane_names_the_one_it_shows(tmp_path: Path) -> None:
    builder = TraceBuilder(tmp_path / "trace")
    builder.allocate(10)
    builder.reserve(0x1000, 2 << 20, device=1)
    builder.allocate(1 << 20, device=1)
    request = MemoryRequest(folder=builder.write(), at=None, look=None, since=None, by=GroupBy.OP)
    view = MemoryReader().look(request)
    assert (view.device, view.program_bytes, view.reserved_bytes) == ("cuda:0", 1 << 20, 2 << 20)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("v")
        app.panes.memory.show(view)
        note = str(app.panes.memory.note.render())
        assert "on cuda:0 at the end" in note and "2.0 MiB reserved" in note

    screen_of(part, tmp_path, PlayedRank())


def test_blocks_of_a_line_that_came_and_others_that_went_say_which_they_are(tmp_path: Path) -> None:
    made = TraceBuilder(tmp_path / "trace")
    line = (Frame("/job/train.py", 61, "main"),)
    made.now = Moment(0, 1, 1)
    old = made.allocate(300, "aten::mm", frames=line)
    made.now = Moment(1, 1, 1)
    made.free(old)
    made.allocate(400, "aten::mm", frames=line)
    made.now = Moment(2, 1)
    made.allocate(1, "aten::mm", frames=line)
    view = looked(made.write(), Moment(2, 1), since=Moment(0, 2))
    assert [(node.label, node.size_bytes) for node in view.nodes][:2] == [
        ("allocated: train.py:61 in main", view.nodes[0].size_bytes),
        ("freed: train.py:61 in main", -300),
    ]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (92, "model.py:53 in forward < model.py:67 < model.py:84 < train.py:34 < train.py:67 < train.py:76"),
        (60, "model.py:53 in forward < … < train.py:67 < train.py:76"),
        (44, "model.py:53 < … < train.py:67 < train.py:76"),
        (40, "model.py:53 … train.py:67 < train.py:76"),
        (30, "model.py:53 … train.py:76"),
    ],
)
def test_of_a_stack_the_ends_are_shown(width: int, shown: str) -> None:
    stack = "model.py:53 in forward < model.py:67 < model.py:84 < train.py:34 < train.py:67 < train.py:76"
    assert figures.called(stack, width) == shown
    assert figures.called(stack, 20) == "model.py:53 in forw…"


def test_of_two_frames_both_are_shown_where_their_names_have_no_room() -> None:
    assert figures.called("train.py:67 in main < train.py:75", 27) == "train.py:67 < train.py:75"
    assert figures.called("aten::empty in DistributedDataParallel", 27) == "aten::empty in Distributed…"


def test_rows_of_two_modules_that_begin_alike_are_told_apart() -> None:
    assert name_in("aten::addmm in module.blocks.0.mlp.up", 27) == "aten::addmm in …0.mlp.up"
    assert name_in("module.blocks.0.mlp.up", 12) == "…0.mlp.up"
    assert name_in("aten::empty in DistributedDataParallel", 27) == "aten::empty in Distributed…"
    assert name_in("model.py:53 in forward < model.py:67 < train.py:76", 30) == "model.py:53 … train.py:76"


def test_a_name_that_is_cut_is_whole_below_the_tree_and_another_list_begins_at_its_top(tmp_path: Path) -> None:
    long = "model.py:53 in forward < model.py:67 < model.py:84 < train.py:34 < train.py:67 < train.py:76"
    nodes = tuple(MemoryNode(label=f"{long} {n}", size_bytes=1000 - n, blocks=1) for n in range(60))
    view = MemoryView(at=Moment(1, 1), curve=curve(), program_bytes=10_000, nodes=nodes)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        memory = app.panes.memory
        await pilot.press("2")
        await until(lambda: "trace on" in memory.shown.note, pilot)
        memory.show(view)
        await until(lambda: memory.whole_name.display and f"{long} 0" in str(memory.whole_name.render()), pilot)
        await pilot.press(*["down"] * 20)
        await until(lambda: memory.blocks.cursor_line == 20 and memory.blocks.scroll_y > 0, pilot)
        memory.show(replace(view, program_bytes=20_000))
        await until(lambda: memory.blocks.cursor_line == 20, pilot)
        memory.show(replace(view, since=Moment(0, 1), nodes=nodes[::-1]))
        await until(lambda: memory.blocks.cursor_line == 0 and memory.blocks.scroll_y == 0, pilot)
        memory.show(replace(view, nodes=(MemoryNode(label="head", size_bytes=1, blocks=1),), by=GroupBy.MODULE))
        await until(lambda: not memory.whole_name.display, pilot)

    screen_of(part, tmp_path, PlayedRank(), size=(80, 24))


def test_the_pane_has_all_frames_of_a_stack_unless_blocks_of_others_are_in_the_same_row(tmp_path: Path) -> None:
    def stack(line: int, depth: int = 1) -> tuple[Frame, ...]:
        lines = (53, 60, 61, 62, *[line] * depth, 67, 76)
        return tuple(Frame("/job/model.py", at, "forward") for at in lines)

    made = TraceBuilder(tmp_path / "trace")
    made.allocate(5000, "aten::mm", frames=stack(34))
    whole = "model.py:53 in forward < model.py:60 < model.py:61 < model.py:62 < "
    (node,) = looked(made.write(), None).nodes
    assert node.label == f"{whole}model.py:34 < model.py:67 < model.py:76"
    made.allocate(5000, "aten::mm", frames=stack(35))
    (node,) = looked(made.write(), None).nodes
    assert node.label == f"{whole}… < model.py:67 < model.py:76"

    deep = TraceBuilder(tmp_path / "deep")
    deep.allocate(5000, "aten::mm", frames=stack(34, depth=900))
    (node,) = looked(deep.write(), None).nodes
    assert node.label.count("…") == 1 and len(node.label) < 1000


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_the_lines_of_a_long_name_come_from_the_list_and_the_curve_keeps_its_height(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    """The curve and all rows jumped with each arrow key."""
    long = "model.py:53 in forward < " + " < ".join(f"a_rather_long_name.py:{n}" for n in range(100))
    nodes = tuple(MemoryNode(label=label, size_bytes=1000, blocks=1) for label in ("short", long))
    view = MemoryView(at=Moment(1, 1), curve=curve(), program_bytes=2000, nodes=nodes)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        memory = app.panes.memory
        await pilot.press("v")
        await until(lambda: "trace on" in memory.shown.note, pilot)
        memory.show(view)
        await until(lambda: memory.curve.size.height > 0 and not memory.whole_name.display, pilot)
        before = memory.curve.size.height, memory.blocks.region.y
        await pilot.press("down")
        await until(lambda: memory.whole_name.display and memory.whole_name.size.height > 0, pilot)
        assert (memory.curve.size.height, memory.blocks.region.y) == before
        assert memory.whole_name.size.height == 3
        name = str(memory.whole_name.render())
        assert name.startswith("model.py:53") and "…" in name and name.endswith("name.py:99")
        assert len(name) > 2 * memory.size.width

    screen_of(part, tmp_path, PlayedRank(), size=size)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_the_chosen_row_stays_in_view_and_the_name_below_is_its_own(tmp_path: Path, size: tuple[int, int]) -> None:
    """The list stood at its top, and below it the stack of a row further down."""
    stack = "model.py:53 in forward < " + " < ".join(f"a_rather_long_name.py:{n}" for n in range(6))
    few = (MemoryNode(label=f"{stack} old", size_bytes=10, blocks=1),)
    more = tuple(MemoryNode(label=f"{stack} new {n}", size_bytes=1000 - n, blocks=1) for n in range(60))
    view = MemoryView(at=Moment(0, 1), curve=curve(), program_bytes=10_000, nodes=few)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        memory, blocks = app.panes.memory, app.panes.memory.blocks

        async def chosen(row: int, name: str) -> None:
            await until(lambda: str(memory.whole_name.render()).endswith(name), pilot)
            await until(lambda: 0 <= row - blocks.scroll_offset.y < blocks.scrollable_content_region.height, pilot)
            assert blocks.cursor_line == row

        await pilot.press("v")
        await until(lambda: "trace on" in memory.shown.note, pilot)
        memory.show(view)
        await chosen(0, " old")
        memory.show(replace(view, at=Moment(1, 1), nodes=(*more, *few)))
        await chosen(0, " new 0")  # nobody chose another than the first
        blocks.move_cursor(blocks.get_node_at_line(60))
        await chosen(60, " old")
        memory.show(replace(view, at=Moment(1, 2), nodes=(*more[:40], *few, *more[40:])))
        await chosen(40, " old")
        memory.show(replace(view, at=Moment(1, 3), nodes=more))
        await chosen(0, " new 0")

    screen_of(part, tmp_path, PlayedRank(), size=size)


def test_the_notice_names_the_moments_in_the_order_of_the_pane() -> None:
    choices = MemoryChoices(lambda: None)
    choices.mark(MemoryPlace(Moment(2, 3), None))
    choices.mark(MemoryPlace(Moment(1, 1), None))
    assert choices.in_words("x") == "memory: difference between 1.1 and 2.3"


@pytest.mark.parametrize("what", ["gone", "empty", "damaged"])
def test_nothing_is_marked_in_a_trace_that_cannot_be_read(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "trace"
    if what == "empty":
        folder = TraceBuilder(tmp_path / "trace").write()
    elif what == "damaged":
        folder = TraceBuilder(tmp_path / "trace").write()
        for segment in folder.glob("*.seg"):
            segment.write_bytes(b"no trace at all" * 10)
    asked = MemoryRequest(folder=folder, at=Moment(1, 1), look=None, since=None, by=GroupBy.OP, marked=Moment(1, 1))
    view = MemoryReader().look(asked)
    assert view.refused.startswith("memory: ") and "\ntry: " in view.refused
    assert not MemoryReader().look(replace(asked, marked=None)).refused
