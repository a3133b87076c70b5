"""Every key and the mouse, as one uses them: what the session is told, and what the screen shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from played import screen_of_app, small_capsule, until
from prismdbg_tui.memory.view import MemoryNode, MemoryView
from prismdbg_tui.screens.help import Help
from prismdbg_tui.session import answers
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.live import Tell
from prismdbg_tui.session.messages import MemoryRead, StateChanged
from prismdbg_tui.session.views import Phase, State
from prismdbg_tui.widgets.timeline import LABEL_WIDTH
from shown import on_screen as text_on
from shown import told
from test_memory_pane import curve
from test_status_line import status
from textual import events
from textual.command import CommandPalette
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Input, OptionList

from prismdbg.model.breakpoints import StopReason
from prismdbg.model.moment import Moment
from prismdbg.session import answers as told_answers
from prismdbg.session.breakpoint_line import parse_breakpoint
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

    @property
    def queued(self) -> tuple[str, ...]:
        return tuple(self.lines)

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


CARRIED_OUT = [
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
    ("H", ["tbreak 1.1"]),
    ("W l o s s enter", ["who wrote loss"]),
    ("W enter n", ["next"]),
    ("w escape n", ["next"]),
    ("colon n e x t space 3 enter escape n", ["next 3", "next"]),
    ("colon enter enter", []),
    ("colon 1 2 . 3 4 5 enter", ["12.345"]),
]


def test_keys_that_the_session_carries_out(tmp_path: Path) -> None:
    names = {"(": "left_parenthesis", ")": "right_parenthesis", ".": "full_stop"}
    expected: list[str] = []

    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        for keys, lines in CARRIED_OUT:
            app.navigation.move(2)
            expected.extend(lines)
            await pilot.press(*(names.get(key, key) for key in keys.split()))
            await until(lambda: len(heard.lines) >= len(expected), pilot)
            assert heard.lines == expected, keys
            await pilot.press("escape")  # the console keeps the keys until then

    assert on_screen(tmp_path, part).lines == expected


def test_a_checkpoint_between_two_collectives_is_returned_to_from_there(tmp_path: Path) -> None:
    """The cursor is on the row before it."""
    taken = Checkpoint(number=4, moment=Moment(1, 1, 1), size_bytes=1 << 20, cost_s=0.2)

    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        heard.show(replace(STANDS, moment=taken.moment, checkpoints=(*STANDS.checkpoints, taken)))
        await until(lambda: app.state.moment == taken.moment, pilot)
        assert app.cursor == app.here == 2
        await pilot.press("R", "left", "R")

    assert on_screen(tmp_path, part).lines == ["restart 4", "restart 0"]


@pytest.mark.parametrize(
    ("where", "restarts"),
    [
        ({}, 3),
        ({"reason": StopReason.EXCEPTION}, 4),
        ({"phase": Phase.FINISHED}, 4),
        ({"phase": Phase.LOST}, 4),
    ],
)
def test_a_checkpoint_at_an_exception_lies_behind_its_collective(
    tmp_path: Path, where: dict[str, Any], restarts: int
) -> None:
    taken = Checkpoint(number=4, moment=Moment(1, 1), size_bytes=1 << 20, cost_s=0.2, side="raised")

    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        state = replace(STANDS, **where, checkpoints=(*STANDS.checkpoints, taken))
        heard.show(state)
        await until(lambda: app.state == state, pilot)
        await pilot.press("R")

    assert on_screen(tmp_path, part).lines == [f"restart {restarts}"]


def test_one_hit_to_ignore_is_one_hit(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        heard.show(replace(STANDS, stops=(replace(parse_breakpoint("nan"), number=4, ignore=1),)))
        await pilot.press("7")
        await until(lambda: "ignores 1 hit" in text_on(app), pilot)
        assert "ignores 1 hits" not in text_on(app)

    on_screen(tmp_path, part)


@pytest.mark.parametrize("hit", [False, True])
def test_keys_of_the_breakpoint_here(tmp_path: Path, hit: bool) -> None:
    """Of the one on just this collective, or on such collectives; the last one is hit here, wherever it is."""
    lines = (("nan", 2), ("exception", 2)) if hit else (("1.1", 2), ("all_reduce", 5))

    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        for line, cursor in lines:
            heard.lines.clear()
            stops = (replace(parse_breakpoint(line), number=4),)
            heard.show(replace(STANDS, stops=stops))
            await until(lambda stops=stops: app.state.stops == stops and not app.state.hit_here, pilot)  # type: ignore[misc]
            app.navigation.move(cursor)
            await pilot.press("P", "1", "2", "enter", "L")
            if hit:
                assert told(app)[-1] == "no breakpoint here: press b to set one"
                heard.show(replace(app.state, hit_here=(4,)))
                await until(lambda: app.state.hit_here, pilot)
                await pilot.press("L")
            await until(lambda: "logpoint 4" in heard.lines, pilot)
            assert heard.lines == (["logpoint 4"] if hit else ["ignore 4 12", "logpoint 4"]), line

    on_screen(tmp_path, part)


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
        app.copy_to_clipboard = copied.append  # type: ignore[method-assign, assignment]
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
        assert app.position is not None and app.position.lane == 0
        await pilot.press("left_square_bracket")
        assert app.position.lane == -1
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


def test_two_keys_end_it(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        left: list[object] = []
        app.exit = lambda *given, **_: left.append(given)  # type: ignore[method-assign]
        for times, key in enumerate(("q", "ctrl+q"), 1):
            await pilot.press(key)
            await until(lambda times=times: len(left) == times, pilot)  # type: ignore[misc]

    assert on_screen(tmp_path, part).lines == []


def test_the_toolkits_own_keys_stay(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        await pilot.press("ctrl+c")
        await until(lambda: "nothing runs here; q quits" in status(app), pilot)
        assert not told(app)
        await pilot.press("ctrl+p")
        await until(lambda: isinstance(app.screen, CommandPalette), pilot)
        await pilot.press(*"back by one ev")
        await until(lambda: app.screen.query("OptionList").first().option_count, pilot)  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until(lambda: heard.lines, pilot)

    assert on_screen(tmp_path, part).lines == ["reverse-step"]


@pytest.mark.parametrize("typed", ["reverse-continue", "reverse_continue", "reverse continue"])
def test_the_palette_finds_an_action_by_its_verb_and_by_its_name(tmp_path: Path, typed: str) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        for text, verb in (("continue", "continue"), (typed, "reverse-continue"), ("origin", "origin")):
            heard.lines.clear()
            await pilot.press("ctrl+p", *({" ": "space"}.get(character, character) for character in text))
            await until(lambda: app.screen.query("OptionList").first().option_count, pilot)  # type: ignore[attr-defined]
            await pilot.press("enter")
            await until(lambda: heard.lines, pilot)
            assert heard.lines == [verb]

    on_screen(tmp_path, part)


def test_the_palette_and_help_show_the_names_that_keys_toml_takes(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        await pilot.press("ctrl+p", *"goto")
        listed = app.screen.query(OptionList)
        await until(lambda: listed.first().option_count, pilot)
        first = str(listed.first().get_option_at_index(0).prompt)
        assert first.startswith("until: go to the collective under the cursor")
        await pilot.press("escape", "escape")
        await until(lambda: len(app.screen_stack) == 1, pilot)
        await pilot.press("question_mark")
        await until(lambda: isinstance(app.screen, Help), pilot)

    on_screen(tmp_path, part)


def test_ctrl_c_cancels_what_takes_long(tmp_path: Path) -> None:
    """Also while the console's line has the keys."""

    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        await pilot.press("colon")
        heard.show(replace(STANDS, phase=Phase.RUNNING, doing="origin"))
        await until(lambda: app.state.phase is Phase.RUNNING, pilot)
        await pilot.press("ctrl+c")
        await until(lambda: heard.others == ["pause"], pilot)
        assert not told(app)

    on_screen(tmp_path, part)


def type_ahead(app: PrismApp, keys: str) -> None:
    """All of them, before the first one is heard."""
    characters = {"slash": "/", "full_stop": ".", "colon": ":", "enter": "\r", "escape": "\x1b"}
    for key in keys.split():
        app.post_message(events.Key(key, characters.get(key, key)))


def test_keys_that_come_faster_than_the_screen_are_not_lost(tmp_path: Path) -> None:
    """As of who types fast, of a macro, or of a slow machine: all of them are there before the first is heard."""
    cases = {
        "slash 2 full_stop 2 enter t n": ["until 2.2", "next"],
        "w l o s s enter n": ["watch loss", "next"],
        "w l o s s escape n": ["next"],
        "slash 2 enter w l o s s enter n": ["watch loss", "next"],
        "colon n enter s enter": ["n", "s"],
    }

    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        for keys, lines in cases.items():
            heard.lines.clear()
            type_ahead(app, keys)
            await until(lambda lines=lines: len(heard.lines) >= len(lines), pilot)  # type: ignore[misc]
            assert heard.lines == lines, keys

    on_screen(tmp_path, part)


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        ("colon n e x t enter", ["next"]),
        ("w l o s s enter n", ["watch loss", "next"]),
        ("w escape n", ["next"]),
        ("B n a n enter", ["break all_reduce on world if nan"]),
        ("slash e q enter n", ["next"]),
        ("a q enter slash 1 full_stop 2 enter t", ["until 1.2"]),
    ],
)
def test_what_is_typed_into_a_line_while_a_search_runs_are_no_commands(
    tmp_path: Path, keys: str, lines: list[str]
) -> None:
    """A quit, and moves of the rank, were among the letters."""
    ended, left = threading.Event(), list[object]()

    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        find = app.views._reader.find

        def slow(*given: Any, **named: Any) -> Any:
            assert ended.wait(20)
            return find(*given, **named)

        app.views._reader.find = slow  # type: ignore[method-assign]
        app.exit = lambda *given, **_: left.append(given)  # type: ignore[method-assign]
        type_ahead(app, "slash 2 full_stop 2 enter")
        await until(lambda: app.views.searches, pilot)
        type_ahead(app, keys)
        app.call_later(ended.set)
        await until(lambda: len(heard.lines) >= len(lines) and not app.views.searches, pilot)
        assert heard.lines == lines and not left

    on_screen(tmp_path, part)


@pytest.mark.parametrize("maximised", [False, True])
def test_what_is_typed_ahead_is_seen_to_be_queued_also_where_the_console_is_hidden(
    tmp_path: Path, maximised: bool
) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        if maximised:
            await pilot.press("z")
        heard.show(replace(STANDS, phase=Phase.RUNNING, doing="origin", since_s=time.monotonic()))
        await until(lambda: app.state.phase is Phase.RUNNING, pilot)
        assert "queued" not in text_on(app) and not app.panes.console.display
        await pilot.press("O", "n")
        await until(lambda: " s  origin · queued: origin, next   esc cancels it" in text_on(app), pilot)
        assert "  queued: runs after origin" in app.panes.console.log_pane.lines_said
        heard.lines.clear()
        await until(lambda: "queued" not in text_on(app), pilot)

    on_screen(tmp_path, part, (80, 24))


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
def test_the_console_keeps_the_keys_until_escape(tmp_path: Path, size: tuple[int, int]) -> None:
    """A second command typed without `:` must not be taken for keys that run the rank."""

    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        await pilot.press("colon", *"print a", "enter", *"print scenf", "enter")
        await until(lambda: len(heard.lines) == 2, pilot)
        assert app.focused is app.panes.console.line
        await pilot.press("escape", "n")
        await until(lambda: len(heard.lines) == 3, pilot)

    assert on_screen(tmp_path, part, size).lines == ["print a", "print scenf", "next"]


def test_a_colon_typed_in_the_console_is_no_part_of_the_command(tmp_path: Path) -> None:
    """The walkthroughs say so before each command, and the console keeps the keys."""

    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        await pilot.press("colon", *"print a", "enter", "colon", *"print scenf", "enter")
        await until(lambda: len(heard.lines) == 2, pilot)
        assert app.panes.console.line.value == ""

    assert on_screen(tmp_path, part).lines == ["print a", "print scenf"]


def test_tab_comes_to_the_console_and_keys_stay_keys(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        while app.layout.pane != "console":
            await pilot.press("tab")
        await pilot.press("n")
        await until(lambda: heard.lines, pilot)
        assert app.query_one("#line", Input).value == ""

    assert on_screen(tmp_path, part).lines == ["next"]


def test_what_was_said_while_the_console_was_hidden_is_laid_out_when_it_is_seen(tmp_path: Path) -> None:
    sentence = "a sentence that fits into a line of the console"

    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        assert not app.panes.console.display
        app.panes.console.say(sentence, "said")
        await pilot.press("colon")
        log = app.panes.console.log_pane
        await until(lambda: any(sentence in strip.text for strip in log.lines), pilot)
        await pilot.press("escape")
        app.panes.console.say(f"{sentence}, again", "said")
        await pilot.press("colon")
        await until(lambda: any(f"{sentence}, again" in strip.text for strip in log.lines), pilot)
        assert all(len(strip.text.strip()) != 1 for strip in log.lines)

    on_screen(tmp_path, part, (80, 24))


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_a_table_of_stacks_has_a_line_per_row_in_the_console(tmp_path: Path, size: tuple[int, int]) -> None:
    """What stands before it is wrapped."""
    stack = " < ".join(["/opt/train/model.py:53 in forward", *(f"train.py:{line}" for line in range(70, 80))])
    table = f"caused by  {'word ' * 40}\n\n   size  blocks  of\n1.0 MiB       4  {stack}\n  535 B      38  {stack}"

    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        await pilot.press("colon")
        app.panes.console.say(table, "table")
        log = app.panes.console.log_pane
        await until(lambda: any("535 B" in strip.text for strip in log.lines), pilot)
        lines = [strip.text.rstrip() for strip in log.lines]
        rows = lines[lines.index("   size  blocks  of") + 1 :]
        assert [row[:15].split() for row in rows] == [["1.0", "MiB", "4"], ["535", "B", "38"]]
        assert all(row.endswith("train.py:79") and "…" in row for row in rows)

    on_screen(tmp_path, part, size)


def test_a_rank_in_a_collective_after_the_last_one_is_at_the_end_of_the_timeline(tmp_path: Path) -> None:
    """And not at the last recorded one, which it has left."""

    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        def rank_is_at() -> int:
            return app.panes.timeline.render_line(app.panes.timeline.size.height - 1).text.index("◆") - LABEL_WIDTH

        assert app.recording is not None and app.panes.timeline.range is not None
        last, seen = len(app.recording) - 1, app.panes.timeline.range
        at_last = app.recording.columns.moment(last)
        assert seen.begin(last) < seen.end(last)
        app.post_message(StateChanged(replace(STANDS, moment=at_last)))
        await until(lambda: app.state.moment == at_last and rank_is_at() == seen.begin(last), pilot)
        after = Moment(at_last.step, at_last.collective + 1)
        app.post_message(StateChanged(replace(STANDS, moment=after)))
        await until(lambda: app.state.moment == after and rank_is_at() == seen.end(last), pilot)

    on_screen(tmp_path, part)


def test_memory_is_told_as_a_table() -> None:
    assert answers.kind(told_answers.Memory(answer=None, by="op", moment=Moment(1, 1))) == "table"
    assert answers.kind(told_answers.Done(what="done")) == "said"


def test_a_screenshot_lies_in_the_working_directory_or_its_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        app.deliver_screenshot()
        (saved,) = tmp_path.glob("prismdbg-*.svg")
        assert saved.read_text().startswith("<svg")
        (tmp_path / "own.txt").write_text("own")
        (tmp_path / "shot.svg").symlink_to(tmp_path / "own.txt")
        app.deliver_screenshot("shot.svg")
        assert (tmp_path / "own.txt").read_text() == "own" and not (tmp_path / "shot.svg").is_symlink()
        app.deliver_screenshot(path=str(tmp_path / "missing"))
        await until(lambda: len(told(app)) == 3, pilot)
        first, _, second = told(app)
        assert str(saved) in first and "No such file" in second and str(tmp_path / "missing") in second

    on_screen(tmp_path / "capsule", part)


def test_the_bar_of_keys_grows_with_the_terminal(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        await pilot.resize_terminal(60, 24)
        await until(lambda: "origin" not in str(app.panes.keys.content) and app.panes.keys.size.width == 60, pilot)
        narrow = str(app.panes.keys.content)
        await pilot.resize_terminal(160, 45)
        await until(lambda: len(str(app.panes.keys.content)) > len(narrow), pilot)
        shown = "".join(segment.text for segment in app.panes.keys.render_line(0))
        assert shown.rstrip() == str(app.panes.keys.content).rstrip()

    on_screen(tmp_path, part)


def test_a_header_that_is_too_long_says_less_and_ends_in_an_ellipsis(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        for width, ends in ((50, "· rank 0"), (30, "…")):
            await pilot.resize_terminal(width, 24)
            await until(lambda width=width: app.panes.header.size.width == width, pilot)  # type: ignore[misc]
            await until(
                lambda ends=ends: app.panes.header.render_line(0).text.rstrip().endswith(ends),  # type: ignore[misc]
                pilot,
            )

    on_screen(tmp_path, part)


def test_in_a_line_every_key_is_a_character(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        await pilot.press("colon", *"nNsSfFcCtbBwudmq", "slash", "full_stop", "left_square_bracket", "z")
        assert app.query_one("#line", Input).value == "nNsSfFcCtbBwudmq/.[z"

    assert on_screen(tmp_path, part).lines == []


async def mouse(
    app: PrismApp, pilot: Pilot[int], kind: type[events.MouseEvent], widget: Widget, x: int, button: int = 0
) -> None:
    """On the third line of `widget`, as a terminal tells it."""
    left, top = widget.region.offset + Offset(x, 2)
    app.post_message(kind(None, left, top, 0, 0, button, False, False, False, left, top))
    await pilot.pause()


def test_the_collectives_of_the_time_line_are_counted_as_the_table_counts_them(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        await pilot.press("o")
        count = str(app.panes.collectives.border_subtitle).replace("calls", "collectives")
        assert f"{count}, one by one" in str(app.panes.timeline.border_title)

    on_screen(tmp_path, part)


def test_the_time_line_is_dragged(tmp_path: Path) -> None:
    """It goes with the mouse, and the end of it is no click."""

    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        timeline = app.panes.timeline
        await pilot.press("o", "plus")  # one by one, and not all of them
        before, cursor = timeline.view, app.cursor
        await pilot.mouse_down(timeline, (60, 2))
        for x in (55, 48):
            await mouse(app, pilot, events.MouseMove, timeline, x, button=1)
        await pilot.mouse_up(timeline, (48, 2))
        await pilot.pause()
        cells = timeline.size.width - LABEL_WIDTH
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
        await mouse(app, pilot, events.MouseScrollUp, timeline, 60)
        assert timeline.view.span < before
        await mouse(app, pilot, events.MouseScrollDown, timeline, 60)
        await mouse(app, pilot, events.MouseScrollDown, timeline, 60)
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


def test_tabs_that_have_no_room_are_not_left_out_in_silence(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        for width in (60, 40):
            await pilot.resize_terminal(width, 24)
            await until(lambda width=width: app.panes.tabs.display and app.size.width == width, pilot)  # type: ignore[misc]
            await pilot.pause()
            (line,) = (line for line in text_on(app).splitlines() if "Stack" in line and "Calls" in line)
            assert line.rstrip().endswith("…")
        await pilot.resize_terminal(80, 24)
        await until(lambda: app.size.width == 80, pilot)
        await pilot.pause()
        assert "9 Out" in text_on(app) and "…" not in str(app.panes.tabs.content)

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
        app.post_message(MemoryRead(view(1000)))
        await until(lambda: len(blocks.root.children) == 6, pilot)
        assert [node.is_expanded for node in blocks.root.children] == [True] * 3 + [False] * 3
        app.export_screenshot()  # what is clicked at was drawn
        await pilot.click(blocks, (3, 6))  # the fourth, below three open ones
        await until(lambda: blocks.root.children[3].is_expanded, pilot)
        await pilot.press("home", "enter")
        await until(lambda: not blocks.root.children[0].is_expanded, pilot)
        await pilot.press("down")
        app.post_message(MemoryRead(view(2000)))
        await until(
            lambda: "1.9 KiB" in str(blocks.root.children[1].label) or "2.0 KiB" in str(blocks.root.children[0].label),
            pilot,
        )
        assert [node.is_expanded for node in blocks.root.children] == [False, True, True, True, False, False]
        assert blocks.cursor_node is blocks.root.children[1]

    on_screen(tmp_path, part)


def test_a_line_is_left_to_the_pane_where_it_was_begun(tmp_path: Path) -> None:
    """At 80 columns the keys went to the table, which was not on the screen, and its tab was marked."""

    async def part(app: PrismApp, pilot: Pilot[int], _heard: Heard) -> None:
        await pilot.resize_terminal(80, 24)
        await until(lambda: app.screen.size.width == 80, pilot)
        for left in ("enter", "escape"):
            await pilot.press("7", "a", *"odd")
            assert not app.panes.stops.has_focus
            await pilot.press(left)
            await until(lambda: app.panes.stops.has_focus, pilot)
            assert app.layout.pane == "stops" and app.panes.stops.display and not app.panes.collectives.display

    on_screen(tmp_path, part)


@pytest.mark.parametrize("typed", ["slow", ""])
def test_a_note_stays_with_the_moment_where_it_was_begun(tmp_path: Path, typed: str) -> None:
    """The rank stopped while somebody typed: another moment got the note, or an empty line took another one's away."""
    begun, elsewhere = Moment(1, 1), Moment(2, 2)

    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        app.notes.set(elsewhere, "another")
        await pilot.press("a", *typed)
        await stops_elsewhere(app, pilot, heard, elsewhere)
        await pilot.press("enter")
        await until(lambda: typed in (app.notes.all.get(begun), ""), pilot)
        assert app.notes.all == {elsewhere: "another"} | ({begun: typed} if typed else {})

    on_screen(tmp_path, part)


async def stops_elsewhere(app: PrismApp, pilot: Pilot[int], heard: Heard, moment: Moment) -> None:
    heard.show(replace(STANDS, phase=Phase.RUNNING))
    heard.show(replace(STANDS, moment=moment))
    await until(lambda: app.navigation.position is not None and app.navigation.position.moment == moment, pilot)


def test_a_condition_is_of_the_collective_where_it_was_begun(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int], heard: Heard) -> None:
        assert app.recording is not None
        app.recording.label = lambda row: f"op{row}"  # type: ignore[method-assign]
        await pilot.press("B", *"nan")
        await stops_elsewhere(app, pilot, heard, Moment(2, 2))
        await pilot.press("enter")
        await until(lambda: heard.lines, pilot)

    assert on_screen(tmp_path, part).lines == ["break op2 on world if nan"]
