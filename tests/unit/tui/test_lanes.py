"""Lanes by group and by rank, where the rows of stops are, and what of a collective was waiting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from capsules import make_capsule
from played import screen_of_app, small_capsule
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.breakpoint_rows import breakpoint_at, rows_of_breakpoint
from prismdbg_tui.session.cursor import CursorPosition
from prismdbg_tui.session.recorded_call import received
from prismdbg_tui.timeline.axis import View, make_axis, whole
from prismdbg_tui.timeline.lanes_image import paint
from prismdbg_tui.timeline.rank_sets import in_order_of_use
from prismdbg_tui.timeline.recording import Recording
from prismdbg_tui.timeline.visible_range import VisibleRange
from test_recording import varied
from textual.content import Content
from textual.pilot import Pilot
from tiny_log import TinyLog

from prismdbg.log.columns import read_columns
from prismdbg.model.moment import Moment
from prismdbg.session.breakpoint_line import parse_breakpoint


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """0: all_reduce in world (0, 1); 1: all_gather in tp (0, 2); 2: barrier in world; 3: send to rank 2 in tp."""
    return Recording(make_capsule(tmp_path / "capsule"), read_columns(varied(tmp_path / "log")))


def test_lanes_by_group_and_by_rank(recording: Recording) -> None:
    assert [(lane.title, lane.count) for lane in recording.by_group.all] == [("world", 2), ("tp", 2)]
    by_rank = recording.by_rank
    assert [(lane.title, lane.count, lane.is_own) for lane in by_rank.all] == [
        ("rank 0", 4, True), ("rank 1", 2, False), ("rank 2", 2, False),
    ]  # fmt: skip
    assert by_rank.rows(1, recording.rank_sets).tolist() == [0, 2]
    assert by_rank.of(int(recording.rank_sets.of[3])) == 2


def test_one_walks_over_lanes_of_either_kind(recording: Recording) -> None:
    position, seen = CursorPosition(recording), []
    for _ in range(3):
        position.choose_lane(1)
        seen.append(position.lane_rows()[1])
    position.change_lanes()
    position.choose_lane(-1)
    assert seen == ["world", "tp", ""] and position.lane_rows()[1] == "rank 2"


def test_groups_are_numbered_as_they_come_also_in_a_damaged_log() -> None:
    for codes in ([5, 3, 5, 9], [5 << 40, 3 << 40, 5 << 40, 9 << 40]):
        order, numbers = in_order_of_use(np.array(codes, dtype=np.int64))
        assert numbers.tolist() == [0, 1, 0, 2] and [order[n] for n in numbers] == codes


def test_what_is_longer_than_the_shortest_of_its_kind_is_waiting(recording: Recording) -> None:
    columns = recording.columns
    columns.op[:2] = columns.op[0]
    columns.size_bytes[:2], columns.begun_ns[:2], columns.ended_ns[:2] = 16, [0, 1000], [100, 1400]
    recording.rank_sets.of[:2] = 0
    assert recording.waited_for_others_ns[:2].tolist() == [0, 300]


def test_what_is_issued_to_a_device_is_no_wait(recording: Recording) -> None:
    recording.columns.on_device[:] = True
    assert not recording.waited_for_others_ns.any()


def test_waits_are_drawn_where_they_are_known(recording: Recording) -> None:
    """A send that never ended waits as long as the log goes; what rank 2 does meanwhile is not in our log."""
    recording.columns.ended_ns[1] = recording.columns.begun_ns[1] + 1
    axis = make_axis(recording, by_time=True)
    for lanes, lane in ((recording.by_group, 1), (recording.by_rank, 0)):
        assert paint(recording, lanes, axis, whole(axis), 40).waited[lane].max() == 1
    others = paint(recording, recording.by_rank, axis, whole(axis), 40)
    assert others.waited[2].max() == 0 and others.covered[2, -2] == 0 < others.covered[0, -2]


@pytest.mark.parametrize("width", [40, 66, 101, 130])
def test_the_last_cell_of_a_wait_without_an_end_is_as_full_as_the_others(recording: Recording, width: int) -> None:
    recording.columns.ended_ns[:3] = recording.columns.begun_ns[:3] + 1
    recording.seen_until_ns = recording.log_until_ns + 1000
    axis = make_axis(recording, by_time=True)
    image = paint(recording, recording.by_group, axis, whole(axis), width)
    last = np.flatnonzero(image.covered[1])[-1]
    assert image.covered[1, last] == image.waited[1, last] == 1


def test_what_was_in_flight_behind_b_does_not_stretch_the_time_line(recording: Recording) -> None:
    """The job went on; what hangs where the capsule ends waits until it was made."""
    row = len(recording) - 1
    recording.columns.ended_ns[:row] = recording.columns.begun_ns[:row] + 1
    recording.columns.ended_ns[row] = -1
    recording.seen_until_ns = recording.log_until_ns + 1000
    recording.beyond = row
    running, word = make_axis(recording, by_time=True).span, recording.open_word(row)
    recording.beyond = row + 1
    assert make_axis(recording, by_time=True).span >= running + 999
    assert (word, recording.open_word(row)) == ("was in flight", "never ended")


def test_one_without_an_end_received_nothing(recording: Recording) -> None:
    """As the table says it: behind B the job went on."""
    row = len(recording) - 1
    recording.columns.ended_ns[row] = -1
    for beyond, word in ((row, "was in flight"), (row + 1, "never ended")):
        recording.beyond = beyond
        (view,) = received(recording, row)
        assert view.value["text"] == f"nothing: the collective {word}"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("all_reduce", [0]),
        ("on tp", [1, 3]),
        ("1.2", [3]),
        ("1.2 if bytes > 3", [3]),
        ("train.py:61", [0]),
        ("nan", [3]),
        ("all_reduce if bytes > 3", []),
        ("exception", []),
    ],
)
def test_which_rows_a_stop_is_about(recording: Recording, text: str, rows: list[int]) -> None:
    assert rows_of_breakpoint(recording, parse_breakpoint(text)).tolist() == rows


def test_the_stop_on_just_this_collective(recording: Recording) -> None:
    stops = (parse_breakpoint("all_reduce"), parse_breakpoint("1.2"), parse_breakpoint("1 if bytes > 3"))
    assert breakpoint_at(recording, stops, 3) == stops[1]
    assert breakpoint_at(recording, stops, 0) is None


def test_a_moment_between_collectives_is_at_the_one_before(recording: Recording) -> None:
    assert CursorPosition(recording).row_at(Moment(0, 2, 17)) == 1


def test_zoom_keeps_what_is_under_the_mouse(recording: Recording) -> None:
    stretch = VisibleRange(recording)
    stretch.cells = 100
    position = stretch.position(25)
    stretch.zoom(0.25, around_cell=25)
    assert abs(stretch.cell(position) - 25) <= 1
    stretch.pan(-10)
    assert stretch.view.start == whole(stretch.axis).start
    stretch.zoom(0)
    assert stretch.view == whole(stretch.axis)
    stretch.change_axis()
    assert stretch.view == whole(stretch.axis) != View(0, 1)


@pytest.mark.parametrize("width", [80, 120])
def test_the_legend_says_what_waits_look_like_before_it_names_all_kinds(width: int, tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "log")
    log.group("0", (0, 1), "default_pg")
    ops = "allreduce_", "_allgather_base_", "_reduce_scatter_base_", "broadcast_", "alltoall_base_"
    for number, op in enumerate(ops, 1):
        log.complete(log.issue(0, number, op=op))

    async def part(app: PrismApp, _pilot: Pilot[int]) -> None:
        assert app.capsule is not None
        app.panes.timeline.show(Recording(app.capsule, read_columns(tmp_path / "log")))
        said = Content.from_markup(app.panes.timeline.border_subtitle or "").plain
        assert said.startswith("■ all_reduce  ■ all_gather  ■ ") and "  ▒ waits" in said, said
        assert said.count("■") < len(ops) if width == 80 else said.count("■") == len(ops)
        assert len(said) <= app.panes.timeline.outer_size.width - 4

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part, (width, 24))
