"""The screen by its keys, messages and state; what it looks like is in `test_pictures`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from played import PlayedRank, has_values, live_over, screen, small_capsule, stopped, until
from prismdbg_tui.screens.help import Help
from prismdbg_tui.screens.pictured_app import PicturedApp
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.views import Phase, SourceView
from prismdbg_tui.session.visible_panes import PANES
from prismdbg_tui.start import WEB_PAGE
from prismdbg_tui.widgets.source import Source, first_seen
from rich.console import RenderableType
from shown import on_screen, running, told
from textual.app import ComposeResult
from textual.pilot import Pilot
from textual.screen import Screen

from prismdbg.model.moment import Moment
from prismdbg.session.line import VERBS, Verb

Play = Callable[[PrismApp, Pilot[int]], Awaitable[None]]


def play(app: PrismApp, part: Play, size: tuple[int, int] = (160, 45)) -> None:
    async def run() -> None:
        async with screen(app, size) as pilot:
            await part(app, pilot)

    asyncio.run(run())


def looking(folder: Path) -> PrismApp:
    return PrismApp(small_capsule(folder), "capsule")


def debugging(folder: Path, rank: PlayedRank) -> PrismApp:
    capsule = small_capsule(folder)
    return PrismApp(capsule, "capsule", live=live_over(capsule, rank))


def view(lines: int, line: int) -> SourceView:
    texts = tuple(f"line_{number}_of_{lines}()" for number in range(1, lines + 1))
    return SourceView(filename=f"/job/f{lines}.py", function="step", line=line, first=1, lines=texts)


def said(app: PrismApp) -> str:
    return "\n".join(app.panes.console.log_pane.lines_said)


def test_it_opens_at_the_incident_and_walks(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        assert app.recording is not None and str(app.recording.columns.moment(app.cursor)) == "2.2"
        seen = []
        for key in ("g", "j", "down", "G", "k", "left"):
            await pilot.press(key)
            seen.append(app.cursor)
        assert seen == [0, 1, 2, 5, 4, 3]

    play(looking(tmp_path), part)


@pytest.mark.parametrize(("at", "is_said"), [("99.1", True), ("2.3", True), ("99", True), ("2.2", False), ("3", False)])
def test_a_moment_after_the_log_is_named_beside_where_the_cursor_is(tmp_path: Path, at: str, is_said: bool) -> None:
    """It went to the last collective, as if that was asked for."""
    line = f"{Moment.parse(at)} is after the last collective in this capsule: the cursor is at 2.2"

    async def opened(app: PrismApp, pilot: Pilot[int]) -> None:
        assert str(app.position.moment) == "2.2"
        assert (line in on_screen(app), line in said(app)) == (is_said, is_said)

    play(PrismApp(small_capsule(tmp_path), "capsule", at=Moment.parse(at)), opened, size=(80, 24))

    async def typed(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("g", "colon", *at, "enter")
        await until(lambda: str(app.position.moment) == "2.2", pilot)
        assert (line in said(app)) is is_said

    play(PrismApp(small_capsule(tmp_path / "typed"), "capsule"), typed)


def test_search_hits_and_filter(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("g", "slash", *"1.", "enter")
        await until(lambda: list(app.position.hits) == [2, 3], pilot)
        assert app.cursor == 2
        await pilot.press("full_stop")
        assert app.cursor == 3
        await pilot.press("full_stop", "comma")
        assert app.cursor == 2
        await pilot.press("ampersand", *"2.", "enter")
        await until(lambda: app.panes.collectives.count == 2, pilot)
        await pilot.press("ampersand", "ctrl+u", "enter")
        await until(lambda: app.panes.collectives.count == 6, pilot)

    play(looking(tmp_path), part)


def test_a_wrong_pattern_is_said(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("slash", *">lots", "enter")
        await until(lambda: "is not a limit" in said(app), pilot)

    play(looking(tmp_path), part)


def test_the_timeline_of_a_recording_is_exported(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        for name in ("run.csv", "run.png"):
            await pilot.press("colon")
            app.panes.console.line.value = f"export timeline {tmp_path / name}"
            await pilot.press("enter")
        await until(lambda: "run.csv: 6 collectives" in said(app) and "ends in none of .svg, .csv" in said(app), pilot)
        assert (tmp_path / "run.csv").read_text().count("\n") == 7

    play(looking(tmp_path), part)


def test_a_read_only_view_explains_a_command(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        for line in ("help watch", "help nothing"):
            await pilot.press("colon")
            app.panes.console.line.value = line
            await pilot.press("enter")
        await until(lambda: VERBS[Verb.WATCH].meaning in said(app) and "nothing" in said(app).split("try:")[0], pilot)
        assert "read-only view of" not in said(app)

    play(looking(tmp_path), part)


def test_the_record_shows_what_was_received(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: has_values(app), pilot)
        assert app.panes.values.first()[0] == "out[0]"
        assert "out[0]  float32[4]" in on_screen(app)

    play(looking(tmp_path), part)


def test_nothing_runs_where_one_only_looks(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("n")
        await until(lambda: len(told(app)), pilot)
        (note,) = told(app)
        assert "read-only view" in note

    play(looking(tmp_path), part)


def test_a_walk_with_a_rank(tmp_path: Path) -> None:
    rank = PlayedRank([stopped("0.1", 2)], [stopped("1.2", 3, "until")])

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("n")
        await until(lambda: str(app.state.moment) == "0.1", pilot)
        assert app.here == app.cursor == 0
        assert app.state.frame == 1, "the program's own frame"
        assert [view.title for view in app.state.values] == ["input[0]", "out[0]"]
        await pilot.press("u")
        await until(lambda: app.state.source.lines[1] == "line_of_frame_2()", pilot)
        await pilot.press("j", "j", "j", "t")
        await until(lambda: str(app.state.moment) == "1.2", pilot)
        assert any(verb == "resume" and asked.get("until") == "1.2" for verb, asked in rank.asked)
        assert app.here == app.cursor == 3

    play(debugging(tmp_path, rank), part)
    assert rank.asked[-1][0] == "quit"


def test_typed_lines_answers_and_history(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("n")
        await until(lambda: str(app.state.moment) == "0.1", pilot)
        await pilot.press("colon", *"print x", "enter")
        await until(lambda: "\n42" in said(app), pilot)
        assert app.state.values[0].title == "x"
        await pilot.press(*"print )", "enter")
        await until(lambda: "^" in said(app), pilot)
        await pilot.press("up", "up", "enter")
        await until(lambda: said(app).count("\n42") == 2, pilot)
        await pilot.press(*"2.1", "enter")
        await until(lambda: str(app.state.moment) == "2.1", pilot)
        assert app.cursor == app.here == 4

    play(debugging(tmp_path, PlayedRank([stopped("0.1", 2)], [stopped("2.1", 3, "until")])), part)


@pytest.mark.parametrize("running", [True, False], ids=["while it runs", "while it stands"])
def test_a_rank_that_dies_is_told(tmp_path: Path, running: bool) -> None:
    rank = PlayedRank([None] if running else [])

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        if running:
            await pilot.press("n")
        else:
            rank.tell(None)
        await until(lambda: app.state.phase is Phase.LOST, pilot)
        assert app.state.lost_because == "its process ended with 137"
        assert app.state.exit_code == 6
        assert app.state.why_exit_code == "the rank is lost: its process ended with 137"
        await pilot.press("g", "j")
        assert app.cursor == 1, "the record is still there"

    play(debugging(tmp_path, rank), part)


def test_what_the_session_cannot_do_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("colon", *"unwatch 3", "enter")
        await until(lambda: "no watch expression number 3" in said(app), pilot)
        assert not any(verb == "resume" for verb, _ in rank.asked)

    rank = PlayedRank()
    play(debugging(tmp_path, rank), part)


@pytest.mark.parametrize("size", [(80, 24), (160, 45), (250, 70)])
def test_every_pane_is_reached_by_tab_at_every_size(tmp_path: Path, size: tuple[int, int]) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        reached = set()
        for _ in PANES:
            await pilot.press("tab")
            await pilot.pause()
            shown = app.query_one(f"#{app.layout.pane}")
            assert shown.display and shown.size.height > 0, app.layout.pane
            reached.add(app.layout.pane)
        assert reached == set(PANES)

    play(debugging(tmp_path, PlayedRank()), part, size)


def test_resize_and_maximise_lose_nothing(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("g")
        await pilot.resize_terminal(80, 24)
        await until(lambda: not app.panes.source.display, pilot)
        assert app.panes.collectives.display and app.panes.timeline.display
        await pilot.press("z")
        await until(lambda: not app.panes.timeline.display, pilot)
        await pilot.press("z")
        await pilot.resize_terminal(160, 45)
        await until(lambda: app.panes.source.display, pilot)
        assert app.cursor == 0

    play(looking(tmp_path), part)


def test_help_and_time_line_keys(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("question_mark")
        assert isinstance(app.screen, Help)
        await pilot.press("escape", "g")
        whole = app.panes.timeline.view
        await pilot.press("plus", "plus")
        assert app.panes.timeline.view.span < whole.span
        await pilot.press("0")
        assert app.panes.timeline.view == whole
        await pilot.press("o", "right_square_bracket")
        assert app.panes.collectives.count == 6

    play(looking(tmp_path), part)


def test_colours_are_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("without", "with"):
        (tmp_path / name).mkdir()
    without = looking(tmp_path / "without")
    monkeypatch.delenv("NO_COLOR", raising=False)  # Textual takes it out of the environment, too
    assert without.no_color

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        assert not app.no_color
        first = app.theme
        await pilot.press("T")
        assert app.theme != first
        assert f"theme: {app.theme}" in on_screen(app) and not told(app)

    play(looking(tmp_path / "with"), part)


def test_keys_of_ones_own(tmp_path: Path) -> None:
    capsule = small_capsule(tmp_path)
    app = PrismApp(capsule, "capsule", keys={"first": "f9"})

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("f9")
        assert app.cursor == 0
        assert app.keys_shown["first"].lower() == "f9"

    play(app, part)


def test_the_moment_is_copied(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        copied: list[str] = []
        app.copy_to_clipboard = copied.append  # type: ignore[method-assign, assignment]
        await pilot.press("g", "y")
        assert copied == ["0.1"]

    play(looking(tmp_path), part)


def test_in_a_browser_the_link_of_the_moment_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        copied: list[str] = []
        app.copy_to_clipboard = copied.append  # type: ignore[method-assign, assignment]
        await pilot.press("g", "Y")
        await until(lambda: any("in a browser only" in note for note in told(app)), pilot)
        monkeypatch.setenv(WEB_PAGE, "http://127.0.0.1:8000/open/2")
        await pilot.press("Y")
        assert copied == ["http://127.0.0.1:8000/open/2/at/0.1"]

    play(looking(tmp_path), part)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
def test_the_source_of_a_stop_below_the_help_is_at_its_line_when_the_help_closes(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    """What lies below another screen is laid out only when it is seen again, and then its size is the same."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        source = app.panes.source
        app.layout.choose("source")
        await until(lambda: source.size.height > 0, pilot)  # by then it has shown the rank's own
        source.show(view(3, 1))
        await until(lambda: "line_1_of_3" in on_screen(app), pilot)
        await pilot.press("question_mark")
        await until(lambda: isinstance(app.screen, Help), pilot)
        source.show(view(400, 390))
        await pilot.pause(0.3)
        await pilot.press("escape")
        await until(lambda: "line_390_of_400" in on_screen(app), pilot)

    play(looking(tmp_path), part, size)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
def test_the_source_pane_shows_the_line_that_its_title_names(tmp_path: Path, size: tuple[int, int]) -> None:
    """One file after the other, shorter or longer than the pane: each is scrolled by its own length."""

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        source = app.panes.source
        app.layout.choose("source")
        await until(lambda: source.size.height > 0, pilot)
        for lines, line in ((3, 2), (400, 390), (3, 1), (200, 100), (400, 5), (400, 399)):
            source.show(view(3, 1))  # put, and replaced before it was laid out
            app.layout.choose("stack")  # at 80x24 it hides the source
            await pilot.pause()
            source.show(view(lines, line))
            app.layout.choose("source")

            def shown(lines: int = lines, line: int = line) -> bool:
                top, height = int(source.scroll_y), source.size.height
                return top <= line - 1 < top + height and source.virtual_size.height >= lines

            await until(shown, pilot)
            assert f"f{lines}.py:{line}" in str(source.border_title)

    play(looking(tmp_path), part, size)


@pytest.mark.parametrize(
    ("marked", "height", "first"),
    [(42, 4, 40), (42, 3, 41), (42, 1, 42), (42, 30, 30), (1, 4, 0), (98, 4, 96)],
)
def test_the_marked_line_has_lines_above_it_in_a_small_pane_too(marked: int, height: int, first: int) -> None:
    assert first_seen(marked, 100, height) == first


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_no_picture_of_the_source_pane_has_the_title_of_one_line_and_the_text_of_another(
    tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only the one it settles at: a machine that is busy shows each of them for long."""
    drawn: list[str] = []
    display = PrismApp._display

    def look(app: PrismApp, screen: Screen[object], update: RenderableType | None) -> None:
        drawn.append(on_screen(app))
        display(app, screen, update)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        source = app.panes.source
        await until(lambda: has_values(app), pilot)  # by then it has shown the call's own
        await pilot.press("3")
        monkeypatch.setattr(PrismApp, "_display", look)
        for lines, line in ((300, 60), (400, 7), (3, 2), (400, 200), (400, 390)):
            source.show(SourceView())  # at 120x36 the pane is folded then
            await until(lambda: "3 Source" in "".join(drawn[-1:]), pilot)
            for other in (line - 1, line):
                source.show(view(lines, other))
                await until(lambda: f"▶{other:>5} line_{other}_of_{lines}()" in drawn[-1], pilot)  # noqa: B023
                assert source.vertical_scrollbar.position == source.scroll_y
        height = source.size.height
        await pilot.press("z")
        await until(lambda: source.size.height > height, pilot)
        await pilot.press("z")
        await until(lambda: source.size.height == height, pilot)
        assert source.scroll_y == first_seen(389, 400, height)

    play(looking(tmp_path), part, size)
    places = [(*title, picture) for picture in drawn for title in re.findall(r" f(\d+)\.py:(\d+) step", picture)]
    assert {f"{line}" for _, line, _ in places} == {"389", "390", "59", "60", "6", "7", "1", "2", "199", "200"}
    wrong = [
        picture for lines, line, picture in places if not re.search(rf"▶ +{line} line_{line}_of_{lines}\(", picture)
    ]
    assert not wrong, f"{len(wrong)} of {len(places)} pictures:\n{wrong[0]}"


def test_the_source_pane_is_blank_until_it_is_known_where_the_rank_stands() -> None:
    class Alone(PicturedApp[None]):
        CSS = ".pane { border: round white; }"

        def compose(self) -> ComposeResult:
            yield Source()

    async def drawn() -> str:
        async with running(app := Alone(), (60, 8)):
            return on_screen(app)

    picture = asyncio.run(drawn())
    assert "Source" in picture and "no Python frame" not in picture


def test_what_is_selected_of_the_source_is_what_is_seen(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        source = app.panes.source
        await until(lambda: has_values(app), pilot)
        source.show(view(400, 390))
        await until(lambda: "▶  390 line_390" in on_screen(app), pilot)
        row = 390 - 1 - int(source.scroll_y) + 1  # below the frame
        await pilot.mouse_down(source, offset=(8, row))
        await pilot.hover(source, offset=(18, row))
        await pilot.mouse_up(source, offset=(18, row))
        assert app.screen.get_selected_text() == "line_390_of"

    play(looking(tmp_path), part)
