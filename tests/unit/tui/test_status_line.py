"""The line above the keys: what runs and how long, the last error, why the rank stands, at every size."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from capsules import MANIFEST, make_capsule
from played import TALLY, PlayedRank, live_over, resized, screen_of, screen_of_app, small_capsule, stopped, until
from prismdbg_tui.session import answers
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.messages import Said, StateChanged
from prismdbg_tui.session.views import Phase, State
from shown import told
from textual.pilot import Pilot
from textual.widgets._toast import Toast

from prismdbg.model.breakpoints import StopReason
from prismdbg.model.frame import Frame
from prismdbg.model.moment import Moment
from prismdbg.render.stop_text import reason_text
from prismdbg.session.answers import Originated
from prismdbg.session.notices import Progress

NO_WATCH = "✕ no watch expression number 3 · try: type `watch` to list them"


def status(app: PrismApp) -> str:
    """As it is seen."""
    return app.panes.status.render_line(0).text.strip()


def test_of_a_traceback_it_is_the_exception(tmp_path: Path) -> None:
    text = (
        'Traceback (most recent call last):\n  File "train.py", line 3, in read\n    f()\nValueError: no number\nof two'
    )

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        app.post_message(Said(text, "error"))
        await until(lambda: status(app) == "✕ ValueError: no number", pilot)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (40, 10)])
def test_what_runs_how_long_and_how_to_end_it(tmp_path: Path, size: tuple[int, int]) -> None:
    rank = PlayedRank([])
    rank.answers["pause"] = lambda _: rank.tell(stopped("0.2", 2, "paused")) or {}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("c")
        await until(lambda: "0 s  continue" in status(app) and "esc cancels it" in status(app), pilot)
        await pilot.press("escape")
        await until(lambda: status(app) == "paused at 0.2; ( goes back to 0.0"[: size[0] - 1], pilot)

    screen_of(part, tmp_path, rank, size=size)


def test_what_a_key_led_to_is_said_until_the_next_key_and_hides_neither_an_error_nor_what_runs(tmp_path: Path) -> None:
    rank = PlayedRank([])
    rank.answers["pause"] = lambda _: rank.tell(stopped("0.2", 2, "paused")) or {}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED and app.is_settled, pilot)
        app.post_message(Said("no such thing", "error"))
        await until(lambda: status(app) == "✕ no such thing", pilot)
        await pilot.press("T")
        await until(lambda: status(app) == f"theme: {app.theme}", pilot)
        app.post_message(Said("no such thing", "error"))
        await until(lambda: status(app) == "✕ no such thing", pilot)
        await pilot.press("T", "G")
        await until(lambda: "no such thing" not in status(app), pilot)
        assert "theme" not in status(app) and not told(app)
        await pilot.press("c")
        await until(lambda: "0 s  continue" in status(app), pilot)
        await pilot.press("T")
        await until(lambda: told(app) == [f"theme: {app.theme}"], pilot)
        await pilot.press("escape")
        await until(lambda: status(app).startswith("paused at 0.2"), pilot)

    screen_of(part, tmp_path, rank)


@pytest.mark.parametrize(("passes", "shown"), [(0, ""), (1, ""), (2, ", pass 2"), (3, ", pass 3")])
@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_the_share_of_another_pass_says_that_it_is_another(
    tmp_path: Path, passes: int, shown: str, size: tuple[int, int]
) -> None:
    """A search runs the rank again and again: 54 % became 32 %."""
    capsule = small_capsule(tmp_path)
    rank = PlayedRank([])
    rank.answers["pause"] = lambda _: rank.tell(stopped("0.2", 2, "paused")) or {}
    live = live_over(capsule, rank)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        messages = live._messages
        assert messages is not None
        await pilot.press("c")
        await until(lambda: app.state.phase is Phase.RUNNING, pilot)

        def is_shown() -> bool:
            """The debugger tells how far its played rank is, too."""
            messages.notice(Progress(text="running", moment=Moment(3, 1), done=8, total=25, passes=passes))
            return f"running{shown}, at 3.1  ▕" in status(app) and "32%" in status(app)

        await until(is_shown, pilot)
        assert "esc cancels it" in status(app)
        await pilot.press("escape")
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)

    screen_of_app(PrismApp(capsule, "capsule", live=live), part, size=size)


@pytest.mark.parametrize("width", [80, 120, 160])
def test_of_a_rank_that_hangs_again_it_says_as_much_as_has_room(tmp_path: Path, width: int) -> None:
    why = (
        "hangs again, as recorded: no further collective within 18 s after 20.0; in the recording, the longest gap "
        "between two collectives was 0.0477 s, and the hang was found after 10.4 s of silence"
    )

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        app.post_message(StateChanged(State(phase=Phase.HUNG, moment=Moment.parse("20.0"), reason=why)))
        await until(lambda: status(app).endswith(" …"), pilot)
        shown = status(app).removesuffix(" …")
        assert why.startswith(shown)
        assert width - 20 < len(shown) < width

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part, size=(width, 36))


def test_why_it_stands_where_nothing_was_asked_for_yet(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        app.post_message(StateChanged(State(phase=Phase.STOPPED, moment=Moment.parse("0.0"), reason="start")))
        await until(lambda: status(app) == "stopped at 0.0: before the first line that follows `import torch`", pilot)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)


def test_what_was_said_on_the_way_here_is_shown_until_something_is_asked_for(tmp_path: Path) -> None:
    told = ("creating one", "rank 1: /runs/a/capsules/made, 4.0 KiB")

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        assert status(app) == "rank 1: /runs/a/capsules/made, 4.0 KiB"
        assert app.panes.console.log_pane.lines_said[:2] == list(told)
        app.post_message(StateChanged(State(phase=Phase.STOPPED, moment=Moment.parse("1.2"), reason="next")))
        await until(lambda: status(app) == "stopped at 1.2 · rank 1: /runs/a/capsules/made, 4.0 KiB", pilot)
        app.type_line("next")
        await until(lambda: status(app) == "stopped at 1.2", pilot)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule", told=told), part)


def test_of_a_capsule_that_cannot_be_replayed_it_says_so(tmp_path: Path) -> None:
    lost = make_capsule(tmp_path / "lost", replace(MANIFEST, replayable_from=Moment(9, 9)))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        assert status(app) == "read-only view of the recording; not replayable: no received data was kept"
        app.type_line("next")
        await until(lambda: "not replayable: no" in app.panes.console.log_pane.lines_said[-1], pilot)

    screen_of_app(PrismApp(lost, "lost"), part)


def test_progress_is_shown_where_it_is_known(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        app.post_message(StateChanged(State(phase=Phase.RUNNING, doing="origin", done=1, total=4)))
        await until(lambda: "origin" in status(app) and "25%" in status(app), pilot)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)


def test_a_command_is_named_while_it_runs_the_rank_again(tmp_path: Path) -> None:
    rank = PlayedRank([])
    at_first = rank.answers["progress"]
    rank.answers["pause"] = lambda _: rank.tell(stopped("0.2", 2, "paused")) or {}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        rank.answers["progress"] = lambda asked: {**at_first(asked), "stopped": None}
        await pilot.press("colon", *"until 2.2", "enter")
        await until(lambda: "until 2.2: running, at 0.0" in status(app), pilot)
        await pilot.press("escape")
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)

    screen_of(part, tmp_path, rank)


def test_what_a_search_found_is_told_where_it_came_to(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        here = State(phase=Phase.STOPPED, moment=Moment.parse("0.1.5"), reason="origin")
        found = "the first NaN was produced by aten::log, 0.1.5 at {}train.py:7 in step"
        app.post_message(StateChanged(replace(here, found=found.format("/a/long/path/") + "\nmore")))
        await until(lambda: status(app) == found.format(""), pilot)
        app.post_message(StateChanged(here))
        await until(lambda: status(app) == "stopped at 0.1.5", pilot)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)


SENTENCE = "the first NaN was already in the inputs of aten::select.int, 11.0.5 at train.py:28 in __getitem__"


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((160, 45), f"{SENTENCE}; first sent or received at 11.1"),
        ((120, 36), SENTENCE),
        ((80, 24), "first NaN: 11.0.5 at train.py:28 in __getitem__, input of aten::select.int"),
    ],
)
def test_where_there_is_little_room_a_search_says_where_it_came_to(
    tmp_path: Path, size: tuple[int, int], shown: str
) -> None:
    frame = Frame("/a/long/path/train.py", 28, "__getitem__")
    found = Originated(
        asked_at=Moment(11, 1),
        moment=Moment.parse("11.0.5"),
        op="aten::select.int",
        born=False,
        what="NaN",
        seen_at=Moment(11, 1),
        frames=(frame,),
        exact=True,
        stop=None,
    )

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        texts: Any = {"found": answers.answer(found), "found_shorter": answers.shorter(found)}
        here = State(phase=Phase.STOPPED, moment=found.moment, reason="origin", **texts)
        app.post_message(StateChanged(here))
        await until(lambda: status(app) == shown, pilot)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part, size=size)


@pytest.mark.parametrize("reason", [StopReason.PARKED, StopReason.END_OF_LOG])
def test_why_a_rank_stands_fits_into_eighty_columns(tmp_path: Path, reason: StopReason) -> None:
    """With what to press next, and what is synthesized."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        here = State(phase=Phase.STOPPED, moment=Moment(2000, 12), reason=reason)
        app.post_message(StateChanged(here))
        await until(lambda: status(app) == f"stopped at 2000.12: {reason_text(reason)}", pilot)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part, size=(80, 24))


def test_the_last_error_stays_until_something_else_could_be_done(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("colon", *"unwatch 3", "enter", "escape")
        await until(lambda: status(app) == NO_WATCH, pilot)
        await resized(app, pilot, (80, 24))
        app.act("next_hit")
        await until(lambda: any("no matches" in note for note in told(app)), pilot)
        assert status(app) == NO_WATCH, "that could not be done either"
        await pilot.press("n")
        await until(lambda: status(app) == "stopped at 0.1", pilot)

    screen_of(part, tmp_path, PlayedRank([stopped("0.1", 2)]))


@pytest.mark.parametrize("key", ["d", "G", "down", "2", "y", "l"])
def test_an_error_goes_with_the_next_key_that_succeeds(tmp_path: Path, key: str) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("n")
        await until(lambda: status(app) == "stopped at 0.1" and len(app.state.frames) == 3, pilot)
        await pilot.press("u")
        await until(lambda: app.state.frame == 2, pilot)
        await pilot.press("colon", *"unwatch 3", "enter", "escape")
        await until(lambda: status(app) == NO_WATCH, pilot)
        await pilot.press(key)
        said = "0.1 copied to the terminal's clipboard" if key == "y" else "stopped at 0.1"
        await until(lambda: status(app) == said, pilot)

    screen_of(part, tmp_path, PlayedRank([stopped("0.1", 2)]))


def test_a_line_that_is_refused_is_no_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prismdbg_tui.session.notes.MAX_NOTES", 0)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("a", *"one too many", "enter")
        await until(lambda: told(app) == ["there are already 0 notes and bookmarks"], pilot)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)


def test_a_lost_rank_is_told_for_good(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("n")
        await until(lambda: status(app).startswith("✕ the rank is lost: its process ended with 137"), pilot)

    screen_of(part, tmp_path, PlayedRank([None]))


def test_a_cancelled_start_is_no_lost_rank_and_can_be_started(tmp_path: Path) -> None:
    capsule, tries = small_capsule(tmp_path), list[int]()
    rank = live_over(capsule, PlayedRank([]))
    opens = rank._opens

    @contextmanager
    def slowly(say: Callable[[str], None]) -> Iterator[Any]:
        tries.append(len(tries))
        while len(tries) == 1:  # the first one never comes up
            say("restoring the checkpoint")
            time.sleep(0.01)
        with opens(say) as place:
            yield place

    rank._opens = slowly

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: "restoring the checkpoint" in status(app), pilot)
        await pilot.press("ctrl+c")
        await until(lambda: status(app) == "✕ the start was cancelled · R starts it", pilot)
        assert not told(app) and app.state.exit_code == 6
        assert app.state.why_exit_code == "the start was cancelled"
        await pilot.press("n")
        await until(lambda: any("type `restart`" in line for line in app.panes.console.log_pane.lines_said), pilot)
        await pilot.press("R")
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        assert tries == [0, 1] and "cancelled" not in status(app)

    screen_of_app(PrismApp(capsule, "capsule", live=rank), part)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_a_start_that_is_cancelled_in_its_last_stage_ends_with_that_stage(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    """Nothing more is said while it lasts, so nothing looked whether it was cancelled."""
    capsule, is_up, tries = small_capsule(tmp_path), threading.Event(), list[str]()
    rank = live_over(capsule, PlayedRank([]))
    opens = rank._opens

    @contextmanager
    def slowly(say: Callable[[str], None]) -> Iterator[Any]:
        with opens(say) as place:
            say("docker: starting the program, which loads the state snapshot at its restore point")
            assert is_up.wait(20)
            tries.append("up")
            yield place

    rank._opens = slowly

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        def is_said(line: str) -> bool:
            return line in app.panes.console.log_pane.lines_said

        await until(lambda: "docker: starting the program" in status(app), pilot)
        assert status(app).endswith("   esc cancels it")
        await pilot.press("c", "N")
        await until(lambda: rank.queued == ("continue", "reverse-next"), pilot)
        await pilot.press("escape")
        await until(lambda: " s  cancelling: docker: starting the program" in status(app), pilot)
        assert rank.queued == () and is_said("dropped: continue, reverse-next")
        await pilot.press("n")
        await until(lambda: rank.queued == ("next",), pilot)
        is_up.set()
        await until(lambda: status(app) == "✕ the start was cancelled · R starts it", pilot)
        assert app.panes.header.render_line(0).text.startswith(" ◣ prismdbg  cancelled ")
        assert rank.queued == () and is_said("dropped: next") and app.state.phase is Phase.LOST
        await pilot.press("R")
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        assert tries == ["up", "up"]

    screen_of_app(PrismApp(capsule, "capsule", live=rank), part, size)


def test_an_error_is_over_once_a_command_runs_that_was_queued_before_it(tmp_path: Path) -> None:
    """The line still showed the exception where the rank had gone back from it."""
    running = State(phase=Phase.RUNNING, doing="continue", since_s=1.0)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        app.post_message(StateChanged(running))
        app.post_message(Said("ValueError: no", "error"))
        stands = replace(running, phase=Phase.STOPPED, moment=Moment(1, 1), reason="next", doing="")
        app.post_message(StateChanged(stands))
        await until(lambda: status(app) == "✕ ValueError: no", pilot)
        app.post_message(StateChanged(replace(running, doing="reverse-next", since_s=2.0)))
        app.post_message(StateChanged(replace(stands, since_s=2.0)))
        await until(lambda: status(app) == "stopped at 1.1", pilot)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)


def test_control_characters_of_a_rank_do_not_steer_the_terminal(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        hostile = State(phase=Phase.STOPPED, moment=Moment(1, 1), reason="\x1b[31mred\nsecond line", can_look=False)
        app.post_message(StateChanged(hostile))
        await until(lambda: "red" in status(app), pilot)
        assert "\x1b" not in status(app) and "second" not in status(app)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (120, "✕ capsule nan-rank2 ends at 11.1, but --until is 12.9 · try: --until 11.1, or leave it out"),
        (80, "✕ capsule nan-rank2 ends at 11.1, but --until is 12.9"),
        (50, "✕ capsule nan-rank2 ends at 11.1, but --until …"),
    ],
)
def test_where_it_is_too_long_whole_words_of_the_least_important_part_go(
    tmp_path: Path, width: int, shown: str
) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        app.post_message(
            Said("capsule nan-rank2 ends at 11.1, but --until is 12.9\n  try: --until 11.1, or leave it out", "error")
        )
        await until(lambda: status(app) == shown, pilot)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part, size=(width, 24))


def test_what_runs_keeps_its_share_and_its_key_where_there_is_little_room(tmp_path: Path) -> None:
    running = State(phase=Phase.RUNNING, doing="origin: running, pass 2, at 1234.56", done=1, total=4)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        app.post_message(StateChanged(replace(running, since_s=time.monotonic())))
        for width, ends in (
            (100, "at 1234.56  ▕███         ▏  25%   esc cancels it"),
            (70, "at 1234.56  25%   esc cancels it"),
            (55, "origin: running, pass 2  25%   esc cancels it"),
            (45, "origin: running, pass 2  25%   esc"),
            (40, "origin: running  25%   esc"),
            (30, "origin …  25%   esc"),
        ):
            await resized(app, pilot, (width, 24))
            await until(lambda ends=ends: status(app).endswith(ends), pilot)  # type: ignore[misc]

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)


def test_of_a_long_name_the_header_keeps_where_the_rank_is(tmp_path: Path) -> None:
    emulated = make_capsule(tmp_path / "capsule", replace(MANIFEST, emulated="dp=4"))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        header = lambda: app.panes.header.render_line(0).text.rstrip()  # noqa: E731
        assert header().endswith(" of 2 · emulated, peers synthesized")
        for width, ends in ((84, " of 2 · emulated"), (70, "rank 0 · emulated")):
            await resized(app, pilot, (width, 24))
            await until(lambda ends=ends: header().endswith(ends), pilot)  # type: ignore[misc]
        assert header().startswith(" ◣ ") and "prismdbg" not in header()

    screen_of_app(PrismApp(emulated, "a-capsule-of-rank-2"), part)


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
def test_a_search_that_is_cancelled_says_where_the_rank_stands_and_what_goes_back(tmp_path: Path, key: str) -> None:
    """A search leaves the rank wherever it was on its way."""
    rank = PlayedRank([stopped("2.1", 2)], [])
    rank.answers["pause"] = lambda _: rank.tell(stopped("0.1", 3, "paused")) or {}
    rank.answers["trace"] = rank.answers["microscope"] = lambda _: {"on": True, "can": True}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("n")
        await until(lambda: str(app.state.moment) == "2.1", pilot)
        await pilot.press("C")
        await until(lambda: app.state.phase is Phase.RUNNING, pilot)
        await pilot.press(key)
        await until(lambda: status(app) == "reverse-continue was cancelled at 0.1; ( goes back to 2.1", pilot)
        assert app.keys_shown["back"] == "("

    screen_of(part, tmp_path, rank, size=(80, 24))


def test_the_place_is_named_without_its_folders(tmp_path: Path) -> None:
    where = "/home/somebody/projects/a-long-name/examples/incidents/hang/train.py:60 in wait_for"
    text = f"rank 2 was captured outside a collective, at {where}"

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        app.post_message(StateChanged(replace(app.state, reason=text)))
        await until(lambda: "captured outside a collective, at train.py:60 in wait_for" in status(app), pilot)

    screen_of(part, tmp_path, PlayedRank(), size=(80, 24))


def test_a_queued_command_is_shown_until_it_runs_or_is_dropped(tmp_path: Path) -> None:
    rank = PlayedRank([], [stopped("0.2", 3)], [])
    rank.answers["pause"] = lambda _: rank.tell(stopped("1.1", 4, "paused")) or {}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("c", "n")
        await until(lambda: "· queued: next   esc cancels it" in status(app), pilot)
        rank.tell(stopped("0.1", 2, "stop"))
        await until(lambda: status(app) == "stopped at 0.2", pilot)
        await pilot.press("c", "n", "s")
        await until(lambda: "· queued: next, step   esc" in status(app), pilot)
        await pilot.press("escape")
        await until(lambda: status(app) == "paused at 1.1; ( goes back to 0.2", pilot)

    screen_of(part, tmp_path, rank, size=(80, 24))


def test_where_there_is_little_room_it_is_said_how_many_commands_are_queued(tmp_path: Path) -> None:
    running = State(phase=Phase.RUNNING, doing="origin: running, pass 2, at 1234.56", done=1, total=4)
    app = PrismApp(small_capsule(tmp_path), "capsule")
    app.panes.status._queued = lambda: ("origin", "print loss")

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        app.post_message(StateChanged(replace(running, since_s=time.monotonic())))
        for width, ends in (
            (120, "at 1234.56  ▕███         ▏  25% · queued: origin, print loss   esc cancels it"),
            (95, "at 1234.56  25% · queued: origin, print loss   esc cancels it"),
            (85, "at 1234.56  25% · 2 queued   esc cancels it"),
            (70, "origin: running, pass 2  25% · 2 queued   esc cancels it"),
            (50, "origin: running  25% · 2 queued   esc"),
        ):
            await resized(app, pilot, (width, 24))
            await until(lambda ends=ends: status(app).endswith(ends), pilot)  # type: ignore[misc]

    screen_of_app(app, part)


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
def test_a_cancelled_search_says_so_also_where_the_rank_came_to_its_place(tmp_path: Path, key: str) -> None:
    """Of a session that was opened again, with a watch expression: it stands where the search began, as if nothing had
    been asked for."""
    rank = PlayedRank([stopped("2.1", 2)], [], [], [stopped("2.2", 4)])
    rank.answers["pause"] = lambda _: rank.tell(stopped("2.1", 3, "until")) or {}
    rank.answers["trace"] = rank.answers["microscope"] = lambda _: {"on": True, "can": True}
    capsule = small_capsule(tmp_path)
    app = PrismApp(capsule, "capsule", live=live_over(capsule, rank, first_lines=("watch loss",)))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED and app.state.watches, pilot)
        await pilot.press("n")
        await until(lambda: status(app) == "stopped at 2.1", pilot)
        await pilot.press("O")
        await until(lambda: app.state.phase is Phase.RUNNING, pilot)
        await pilot.press(key)
        await until(lambda: status(app) == "origin was cancelled at 2.1; ( goes back to 0.0", pilot)
        assert not app.panes.console.display
        await pilot.press("colon", *"watch loss + 1", "enter", "escape")
        await until(lambda: "loss + 1" in status(app), pilot)
        await pilot.press("O")
        await until(lambda: app.state.phase is Phase.RUNNING and "cancelled" not in status(app), pilot)
        await pilot.press(key)
        await until(lambda: "origin was cancelled" in status(app), pilot)
        await pilot.press("n")
        await until(lambda: status(app) == "stopped at 2.2", pilot)

    screen_of_app(app, part, (80, 24))


def test_a_search_that_is_cancelled_while_the_program_ends_says_so(tmp_path: Path) -> None:
    rank = PlayedRank([])
    ends = {"event": "finished", "moment": "2.2", "code": 0, "tally": TALLY}
    rank.answers["pause"] = lambda _: rank.tell(ends) or {}
    rank.answers["trace"] = lambda _: {"on": True, "can": True}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("O")
        await until(lambda: app.state.phase is Phase.RUNNING, pilot)
        await pilot.press("escape")
        await until(lambda: app.state.phase is Phase.FINISHED, pilot)
        await until(lambda: status(app).startswith("origin was cancelled at 2.2"), pilot)

    screen_of(part, tmp_path, rank, size=(80, 24))


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_a_notification_covers_neither_the_status_line_nor_the_keys(tmp_path: Path, size: tuple[int, int]) -> None:
    async def run() -> None:
        app = PrismApp(small_capsule(tmp_path), "capsule")
        async with app.run_test(size=size, notifications=True) as pilot:
            await until(lambda: app.recording is not None, pilot)
            app.refuse("there is nothing before this; " * 6)
            await until(lambda: app.screen.query(Toast), pilot)
            toast = app.screen.query_one(Toast).region
            assert toast.height > 3, "it has many lines"
            for covered in (app.panes.status.region, app.panes.keys.region):
                assert covered.height == 1 and not toast.overlaps(covered), (toast, covered)

    asyncio.run(run())
