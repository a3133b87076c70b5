"""Every key and the mouse, as one uses them: what the session is told, and what the screen shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from played import screen_of_app, small_capsule, until
from prismdbg_tui.app import PrismApp
from prismdbg_tui.live import Tell
from prismdbg_tui.memory_view import MemoryNode, MemoryView
from prismdbg_tui.messages import MemoryLooked, StateChanged
from prismdbg_tui.screens.help import Help
from prismdbg_tui.views import Phase, State
from test_memory_pane import curve
from textual import events
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Input

from prismdbg.model.moment import Moment
from prismdbg.session.checkpoint import Checkpoint

STANDS = State(
    phase=Phase.STOPPED,
    moment=Moment(1, 1),
    runtime="played",
    can_look=True,
    checkpoints=(
        Checkpoint(number=0, moment=Moment(0, 1), size_bytes=0, cost_s=0.1),
        Checkpoint(number=3, moment=Moment(1, 1), size_bytes=1 << 20, cost_s=0.2),
    ),
)


class Heard:
    """A rank that stands at 1.1 and keeps what it is asked."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.others: list[str] = []
        self._tell: Tell = lambda _: None

    def start(self, tell: Tell) -> None:
        self._tell = tell
        self.show(STANDS)

    def show(self, state: State) -> None:
        self._tell(StateChanged(state))

    def type_line(self, text: str) -> None:
        self.lines.append(text)

    def choose_frame(self, by: int) -> None:
        self.others.append(f"frame {by:+}")

    def pause(self) -> None:
        self.others.append("pause")

    def close(self) -> None:
        self.others.append("close")

    def wait(self, bound_s: float) -> bool:
        return True


def on_screen(
    folder: Path, part: Callable[[PrismApp, Pilot[int], Heard], object], size: tuple[int, int] = (160, 45)
) -> Heard:
    heard, capsule = Heard(), small_capsule(folder)
    app = PrismApp(capsule, "capsule", live=heard)

    async def play(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.here == 2 and app.cursor == 2, pilot)
        await part(app, pilot, heard)  # type: ignore[misc]

    screen_of_app(app, play, size)
    return heard


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        ("n", ["next"]),
        ("N", ["reverse-next"]),
        ("s", ["step"]),
        ("S", ["reverse-step"]),
        ("f", ["finish"]),
        ("F", ["reverse-finish"]),
        ("c", ["continue"]),
        ("C", ["reverse-continue"]),
        ("G t", ["until 2.2"]),
        ("g t", ["goto 0.1"]),
        ("O", ["origin"]),
        ("M", ["memory"]),
        ("m", ["checkpoint"]),
        ("R", ["restart 3"]),
        ("g R", ["restart 0"]),
        ("b", ["break 1.1"]),
        ("left_parenthesis right_parenthesis", ["back", "forward"]),
        ("B n a n ( o u t ) enter", ["break all_reduce on world if nan(out)"]),
        ("w l o s s enter", ["watch loss"]),
        ("w escape n", ["next"]),
        ("colon n e x t space 3 enter n", ["next 3", "next"]),
        ("colon 1 2 . 3 4 5 enter", ["12.345"]),
    ],
)
def test_keys_that_the_session_carries_out(tmp_path: Path, keys: str, lines: list[str]) -> None:
    names = {"(": "left_parenthesis", ")": "right_parenthesis", ".": "full_stop"}

    async def part(_app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        await pilot.press(*(names.get(key, key) for key in keys.split()))
        await until(lambda: len(heard.lines) >= len(lines), pilot)

    assert on_screen(tmp_path, part).lines == lines


def test_frames_and_pause(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        await pilot.press("u", "d", "p")
        heard.show(replace(STANDS, phase=Phase.RUNNING, doing="continue"))
        await until(lambda: app.state.phase is Phase.RUNNING, pilot)
        await pilot.press("escape")

    assert on_screen(tmp_path, part).others[:4] == ["frame +1", "frame -1", "pause", "pause"]


def test_looking_around_moves_nothing(tmp_path: Path) -> None:
    """First, last, search, its hits, lanes, help, panes, one alone, the moment copied."""

    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        copied: list[str] = []
        app.copy_to_clipboard = copied.append  # type: ignore[method-assign]
        await pilot.press("G")
        assert app.cursor == 5
        await pilot.press("g")
        assert app.cursor == 0
        await pilot.press("slash", *"2.", "enter")
        await until(lambda: app.cursor == 4, pilot)
        await pilot.press("full_stop")
        assert app.cursor == 5
        await pilot.press("comma")
        assert app.cursor == 4
        await pilot.press("y")
        assert copied == ["2.1"]
        await pilot.press("right_square_bracket")
        assert app.sight is not None and app.sight.lane == 0
        await pilot.press("left_square_bracket")
        assert app.sight.lane == -1
        for key in ("question_mark", "f1"):
            await pilot.press(key)
            assert isinstance(app.screen, Help)
            await pilot.press(key)
            assert not isinstance(app.screen, Help)
        await pilot.press("tab")
        assert app.layout.pane == "memory"
        await pilot.press("shift+tab")
        assert app.layout.pane == "collectives"
        await pilot.press("z")
        assert not app.panes.timeline.display and app.panes.collectives.display
        await pilot.press("z")
        assert app.panes.timeline.display

    assert on_screen(tmp_path, part).lines == []


def test_keys_that_come_at_once_are_all_heard(tmp_path: Path) -> None:
    """As a key that is held, or keys over a slow line."""

    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        await pilot.press("g")
        for key in ("j", "j", "down", "k", "right"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(lambda: app.cursor == 3, pilot)

    on_screen(tmp_path, part)


@pytest.mark.parametrize("key", ["q", "ctrl+q"])
def test_two_keys_end_it(tmp_path: Path, key: str) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        await pilot.press(key)
        await until(lambda: app._exit, pilot)

    assert on_screen(tmp_path, part).lines == []


def test_the_toolkits_own_keys_stay(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        await pilot.press("ctrl+c")
        await until(lambda: any("ctrl+q" in note.message for note in app._notifications), pilot)
        await pilot.press("ctrl+p")
        await until(lambda: isinstance(app.screen, CommandPalette), pilot)
        await pilot.press(*"back by one ev")
        await until(lambda: app.screen.query("OptionList").first().option_count, pilot)  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(lambda: heard.lines, pilot)

    assert on_screen(tmp_path, part).lines == ["reverse-step"]


def test_in_a_line_every_key_is_a_character(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        await pilot.press("colon", *"nNsSfFcCtbBwudmq", "slash", "full_stop", "left_square_bracket", "z")
        assert app.query_one("#line", Input).value == "nNsSfFcCtbBwudmq/.[z"

    assert on_screen(tmp_path, part).lines == []


def test_the_time_line_is_dragged(tmp_path: Path) -> None:
    """It goes with the mouse, and the end of it is no click."""

    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        timeline = app.panes.timeline
        await pilot.press("o", "plus")  # one by one, and not all of them
        before, cursor = timeline.view, app.cursor
        await pilot.mouse_down(timeline, (60, 2))
        for x in (55, 48):
            await pilot._post_mouse_events([events.MouseMove], timeline, (x, 2), button=1)
        await pilot.mouse_up(timeline, (48, 2))
        await pilot.pause()
        cells = timeline._stretch.cells if timeline._stretch is not None else 1
        assert timeline.view.span == before.span
        assert abs(timeline.view.start - before.start - 12 / cells * before.span) < before.span / cells
        assert app.cursor == cursor
        await pilot.click(timeline, (20, 2))
        assert app.cursor < cursor

    on_screen(tmp_path, part)


def test_the_wheel_zooms_the_time_line(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        timeline = app.panes.timeline
        before = timeline.view.span
        await pilot._post_mouse_events([events.MouseScrollUp], timeline, (60, 2))
        assert timeline.view.span < before
        await pilot._post_mouse_events([events.MouseScrollDown], timeline, (60, 2))
        await pilot._post_mouse_events([events.MouseScrollDown], timeline, (60, 2))
        assert timeline.view.span == before

    on_screen(tmp_path, part)


def test_the_table_the_bar_of_keys_and_the_tabs_take_clicks(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        await pilot.click(app.panes.collectives, (5, 2 + 4))
        assert app.cursor == 4
        bar = str(app.panes.keys.content)
        await pilot.click(app.panes.keys, (bar.index("n next"), 0))
        await until(lambda: heard.lines == ["next"], pilot)
        await pilot.resize_terminal(80, 24)
        await until(lambda: app.panes.tabs.display, pilot)
        await pilot.pause()
        titles = str(app.panes.tabs.content)
        await pilot.click(app.panes.tabs, (titles.index("Stack"), 0))
        assert app.layout.pane == "stack" and app.panes.stack.display

    on_screen(tmp_path, part)


def test_the_tree_of_blocks_takes_the_mouse_and_stays_open(tmp_path: Path) -> None:
    def view(size_bytes: int) -> MemoryView:
        leaf = MemoryNode(label="aten::mm in layers.0", size_bytes=size_bytes, blocks=1)
        nodes = [
            MemoryNode(label=f"model.py:{line} in forward", size_bytes=size_bytes - line, blocks=1, children=(leaf,))
            for line in range(6)
        ]
        return MemoryView(at=Moment(1, 1), curve=curve(), program_bytes=size_bytes, nodes=tuple(nodes))

    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        await pilot.press("v")
        blocks = app.panes.memory.blocks
        app.post_message(MemoryLooked(view(1000)))
        await until(lambda: len(blocks.root.children) == 6, pilot)
        assert [node.is_expanded for node in blocks.root.children] == [True] * 3 + [False] * 3
        await pilot.click(blocks, (3, 6))  # the fourth, below three open ones
        await until(lambda: blocks.root.children[3].is_expanded, pilot)
        await pilot.press("home", "enter")
        await until(lambda: not blocks.root.children[0].is_expanded, pilot)
        await pilot.press("down")
        app.post_message(MemoryLooked(view(2000)))
        await until(
            lambda: "1.9 KiB" in str(blocks.root.children[1].label) or "2.0 KiB" in str(blocks.root.children[0].label),
            pilot,
        )
        assert [node.is_expanded for node in blocks.root.children] == [False, True, True, True, False, False]
        assert blocks.cursor_node is blocks.root.children[1]

    on_screen(tmp_path, part)
