"""Notes, bookmarks and sessions: kept in a file beside the capsule, and there again when it is opened again."""

from __future__ import annotations

import fcntl
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from played import PlayedRank, has_values, live_over, screen_of_app, small_capsule, stopped, until
from prismdbg_tui.session import sidecar
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.messages import StateChanged
from prismdbg_tui.session.sidecar import MAX_BYTES, MAX_NOTES, SUFFIX, Kept, Sidecar, beside, lines_of
from prismdbg_tui.session.views import Phase, State
from prismdbg_tui.start import _kept_lines
from shown import on_screen, told
from textual.events import DescendantFocus
from textual.pilot import Pilot
from textual.widgets import Input

from prismdbg.errors import CapsuleError, FacilityError
from prismdbg.model.moment import Moment
from prismdbg.session.breakpoint_line import parse_breakpoint
from prismdbg.session.line import MAX_LINE

FIRST = ("break nan",)


def looking(capsule: Path) -> PrismApp:
    return PrismApp(small_capsule(capsule.parent), "capsule", sidecar=Sidecar(beside(capsule)))


def looking_from(folder: Path, path: Path) -> PrismApp:
    return PrismApp(small_capsule(folder), "capsule", sidecar=Sidecar(beside(path)))


def debugging(folder: Path, path: Path) -> PrismApp:
    capsule, sidecar = small_capsule(folder), Sidecar(beside(path))
    rank = PlayedRank([stopped("0.1", 2)])
    live = live_over(capsule, rank, first_lines=_kept_lines(sidecar, FIRST))
    return PrismApp(capsule, "capsule", live=live, sidecar=sidecar, first_lines=FIRST)


def test_notes_and_bookmarks_are_there_again(tmp_path: Path) -> None:
    path = tmp_path / "one" / "capsule"

    async def write(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("g", "a", *"begins here", "enter")
        for row, keys in ((2, "K"), (3, "KK")):
            app.navigation.move(row)
            await pilot.press(*keys)
        assert app.panes.collectives.render_line(1).text.startswith("⚑0.1")
        await pilot.press("7")
        await until(lambda: "begins here" in str(app.panes.stops.body.content), pilot)

    screen_of_app(looking(path), write, (80, 24))
    assert json.loads(beside(path).read_text())["notes"] == {"0.1": "begins here", "1.1": ""}
    again = PrismApp(small_capsule(tmp_path / "two"), "capsule", sidecar=Sidecar(beside(path)))

    async def read(app: PrismApp, pilot: Pilot[int]) -> None:
        assert app.layout.pane == "stops", "where one was"
        await pilot.press("apostrophe")
        assert app.cursor == 0
        await pilot.press("apostrophe")
        assert app.cursor == 2
        app.navigation.move(0)
        await pilot.press("K")
        await until(lambda: "0.1 has a note: press a to change it" in told(app), pilot)
        assert app.notes.all[Moment(0, 1)] == "begins here", "only a bookmark is taken away by its key"
        await pilot.press("a", *["backspace"] * 12, "enter")
        assert list(map(str, app.notes.all)) == ["1.1"]

    screen_of_app(again, read)
    assert json.loads(beside(path).read_text())["notes"] == {"1.1": ""}


def test_a_screen_in_which_nothing_was_left_leaves_no_file(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        if app.live is not None:
            await until(lambda: len(app.state.stops) == 1, pilot)
        await pilot.press("g", "G", "3")

    screen_of_app(looking(tmp_path / "one" / "capsule"), part)
    screen_of_app(debugging(tmp_path / "two", tmp_path / "two" / "capsule"), part)
    assert not list(tmp_path.rglob(f"*{SUFFIX}"))


def test_breakpoints_watches_and_history_are_there_again(tmp_path: Path) -> None:
    path = tmp_path / "capsule"

    async def leave(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED and len(app.state.stops) == 1, pilot)
        for line in ("delete 1", "break all_reduce on world if step > 1", "ignore 2 3", "watch loss"):
            app.panes.console.line.remember(line)
            app.type_line(line)
        await until(lambda: app.state.watches and app.state.stops[0].ignore == 3, pilot)

    screen_of_app(debugging(tmp_path / "one", path), leave)

    async def come_back(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.watches and app.state.stops and app.state.stops[0].ignore == 3, pilot)
        assert [stop.title for stop in app.state.stops] == ["all_reduce on world if step > 1"], "and no nan"
        assert [watch.text for watch in app.state.watches] == ["loss"]
        await pilot.press("colon", "up")
        assert app.panes.console.line.value == "watch loss"

    screen_of_app(debugging(tmp_path / "two", path), come_back)


async def set_breakpoint(app: PrismApp, pilot: Pilot[int]) -> None:
    await until(lambda: app.state.phase is Phase.STOPPED and len(app.state.stops) == 1, pilot)
    app.panes.console.line.remember("break all_reduce")
    app.type_line("break all_reduce")
    await until(lambda: len(app.state.stops) == 2, pilot)


async def write_note(app: PrismApp, pilot: Pilot[int]) -> None:
    await pilot.press("g", "a", *"begins here", "enter")
    app.panes.console.line.remember("print 1")


LINES = ("break nan", "break all_reduce")
NOTED, TYPED = {Moment(0, 1): "begins here"}, ("break all_reduce", "print 1")


def test_what_another_screen_has_left_meanwhile_stays(tmp_path: Path) -> None:
    """Each has read the file before the other one wrote."""
    path = tmp_path / "capsule"
    runs, looks = debugging(tmp_path / "one", path), looking_from(tmp_path / "two", path)
    screen_of_app(runs, set_breakpoint)
    screen_of_app(looks, write_note)
    kept = Sidecar(beside(path)).read()
    assert (kept.lines, kept.notes, kept.history) == (LINES, NOTED, TYPED)
    beside(path).unlink()
    runs, looks = debugging(tmp_path / "three", path), looking_from(tmp_path / "four", path)
    screen_of_app(looks, write_note)
    screen_of_app(runs, set_breakpoint)
    kept = Sidecar(beside(path)).read()
    assert (kept.lines, kept.notes, kept.history) == (LINES, NOTED, TYPED[::-1])


def test_a_note_that_another_screen_has_removed_meanwhile_stays_removed(tmp_path: Path) -> None:
    path = tmp_path / "capsule"
    Sidecar(beside(path)).write(Kept(notes={Moment(0, 1): "", Moment(1, 1): "stays"}))
    looks, removes = (looking_from(tmp_path / name, path) for name in ("one", "two"))

    async def remove(_app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("g", "K")

    async def add(app: PrismApp, pilot: Pilot[int]) -> None:
        app.navigation.move(3)
        await pilot.press("K")

    screen_of_app(removes, remove)
    assert Sidecar(beside(path)).read().notes == {Moment(1, 1): "stays"}
    screen_of_app(looks, add)
    kept = Sidecar(beside(path)).read().notes
    assert Moment(0, 1) not in kept and kept[Moment(1, 1)] == "stays" and len(kept) == 2


def test_a_file_that_was_removed_meanwhile_is_written_with_all_that_the_screen_has(tmp_path: Path) -> None:
    kept = Sidecar(beside(tmp_path / "capsule"))
    read, now = Kept(notes={Moment(1, 1): "n"}), Kept(notes={Moment(1, 1): "n", Moment(2, 1): ""})
    kept.write(now, read)
    assert kept.read() == now


def test_more_notes_than_can_be_read_again_are_not_kept(tmp_path: Path) -> None:
    kept = Sidecar(beside(tmp_path / "capsule"))
    half = [{Moment(step, 1): "" for step in range(start, start + MAX_NOTES // 2 + 1)} for start in (0, MAX_NOTES)]
    kept.write(Kept(notes=half[0]))
    with pytest.raises(FacilityError, match="more than") as told:
        kept.write(Kept(notes=half[1]))
    assert told.value.hint and kept.read().notes == half[0]


def test_what_other_screens_write_at_the_same_time_is_all_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "LOCK_BOUND_S", 60.0)  # people do not write one note after the other without a pause
    path = beside(tmp_path / "capsule")

    def writes(step: int) -> None:
        notes: dict[Moment, str] = {}
        for number in range(20):
            before, notes = notes, {**notes, Moment(step, number + 1): ""}
            Sidecar(path).write(Kept(notes=notes), Kept(notes=before))

    with ThreadPoolExecutor(3) as screens:
        list(screens.map(writes, range(3)))
    assert len(Sidecar(path).read().notes) == 60 and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_stays_locked_is_not_waited_for_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a process that was stopped, say."""
    monkeypatch.setattr(sidecar, "LOCK_BOUND_S", 0.1)
    writes_while_locked(tmp_path, fcntl.LOCK_EX)


def test_a_folder_that_a_process_uses_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of what was fetched, for as long as the screen shows it."""
    monkeypatch.setattr(sidecar, "LOCK_BOUND_S", 3600.0)
    (tmp_path / "capsule").write_text("packed")
    writes_while_locked(tmp_path, fcntl.LOCK_SH)


def writes_while_locked(folder: Path, lock: int) -> None:
    """Another process holds the folder of the capsule."""
    holder = os.open(folder, os.O_RDONLY)
    fcntl.flock(holder, lock)
    try:
        Sidecar(beside(folder / "capsule")).write(Kept(notes=NOTED))
    finally:
        os.close(holder)
    assert Sidecar(beside(folder / "capsule")).read().notes == NOTED


def test_a_screen_that_is_left_before_its_rank_stood_forgets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "capsule"
    Sidecar(beside(path)).write(Kept(lines=("break all_reduce", "watch loss")))

    async def part(app: PrismApp, _pilot: Pilot[int]) -> None:
        app.state = replace(app.state, phase=Phase.RUNNING, runtime="played", stops=(), watches=())
        app.notes.keep()

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule", sidecar=Sidecar(beside(path))), part)
    assert json.loads(beside(path).read_text())["lines"] == ["break all_reduce", "watch loss"]


@pytest.mark.parametrize(
    "line",
    ["nan", "all_reduce on dp #3", "train.py:61", "exception", "peer 2", "allocation if bytes > 4096", "change loss"],
)
def test_a_breakpoint_is_the_same_again(line: str) -> None:
    spec = replace(parse_breakpoint(line), number=7, once=True, ignore=2, log_only=True)
    first, *more = lines_of((spec,), ())
    verb, _, typed = first.partition(" ")
    assert verb == "tbreak" and parse_breakpoint(typed) == parse_breakpoint(line)
    assert more == ["ignore 1 2", "logpoint 1"]
    assert lines_of((replace(spec, message="loss={loss}"),), ())[-1] == "logpoint 1 loss={loss}"


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "{}", '{"version": 2}', "[" * 100_000, "x" * (MAX_BYTES + 1),
        '{"version": 1, "notes": {"x": ""}, "lines": null, "panes": [], "history": []}',
        '{"version": 1, "notes": {"1.1": 3}, "lines": null, "panes": [], "history": []}',
        '{"version": 1, "notes": {}, "lines": ["quit"], "panes": [], "history": []}',
        '{"version": 1, "notes": {}, "lines": ["memory export /etc/passwd"], "panes": [], "history": []}',
        '{"version": 1, "notes": {}, "lines": 3, "panes": [], "history": []}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_told_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "capsule"
    beside(path).write_text(text)
    with pytest.raises(CapsuleError) as told:
        Sidecar(beside(path)).read()
    assert str(beside(path)) in str(told.value) and told.value.hint
    assert _kept_lines(Sidecar(beside(path)), FIRST) == FIRST

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: "cannot be read" in str(app.panes.status.content), pilot)
        await pilot.press("K")

    screen_of_app(PrismApp(small_capsule(tmp_path / "in"), "capsule", sidecar=Sidecar(beside(path))), part)
    assert beside(path).read_text() == text and not list(tmp_path.glob(".*"))


def test_what_is_too_long_to_be_read_again_is_not_kept(tmp_path: Path) -> None:
    """One such line, and the next screen could read nothing of the file."""
    path = tmp_path / "one" / "capsule"

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("K", "colon")
        for text in ("print 1", f"print {'1' * MAX_LINE}"):
            app.panes.console.line.value = text
            await pilot.press("enter")
        await pilot.press("escape", "g", "a")
        app.query_one("#prompt Input", Input).value = "n" * (MAX_LINE + 1)
        await pilot.press("enter")
        await until(lambda: f"at most {MAX_LINE} characters" in on_screen(app), pilot)

    screen_of_app(looking(path), part)
    kept = Sidecar(beside(path)).read()
    assert kept.history == ("print 1",) and kept.notes == {Moment(2, 2): ""}


def test_of_a_file_that_would_be_too_large_the_oldest_lines_typed_are_dropped(tmp_path: Path) -> None:
    """A character beyond ASCII takes six bytes."""
    sidecar, note = Sidecar(beside(tmp_path / "capsule")), {Moment(1, 1): "n"}
    typed = tuple(f"{number} {'ä' * 3000}" for number in range(100))
    sidecar.write(Kept(notes=note, history=typed))
    kept = sidecar.read()
    assert kept.notes == note and kept.history == typed[-len(kept.history) :] and len(kept.history) > 50

    many = {Moment(step, 1): "n" * MAX_LINE for step in range(300)}
    with pytest.raises(FacilityError, match="larger than") as told:
        sidecar.write(Kept(notes=many))
    assert told.value.hint and sidecar.read() == kept


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    """Notes and what was typed may say as much as the capsule, which is 0700."""
    before = os.umask(0o022)
    try:
        Sidecar(beside(tmp_path / "capsule")).write(Kept(history=("print secret",)))
    finally:
        os.umask(before)
    assert beside(tmp_path / "capsule").stat().st_mode & 0o777 == 0o600


def test_where_it_cannot_be_written_that_is_told_once_and_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "capsule"

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("K")
        assert "cannot be saved" in told(app)[-1]
        assert app.notes.all == {Moment(2, 2): ""}, "as long as the screen is there"

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule", sidecar=Sidecar(beside(path))), part)
    assert not path.parent.exists()


def test_a_value_is_copied(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        copied: list[str] = []
        app.copy_to_clipboard = copied.append  # type: ignore[method-assign, assignment]
        await until(lambda: has_values(app), pilot)
        await pilot.press("5", "y", "1", "y")
        assert copied[0].startswith("tensor") or "float32[4]" in copied[0]
        assert copied[1] == "2.2"
        assert "2.2 copied to the terminal's clipboard" in str(app.panes.status.visual) and not told(app)

    screen_of_app(looking(tmp_path / "one" / "capsule"), part)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
def test_a_restored_console_leaves_keys_keys(tmp_path: Path, size: tuple[int, int]) -> None:
    """No line has the focus before somebody goes into it: `q` would be typed into it."""
    path = tmp_path / "capsule"

    async def leave(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        await pilot.press("colon", *"print 1", "enter", "escape", "1", "8")
        await pilot.press("q")

    async def again(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED and app.layout.pane == "console", pilot)
        app.post_message(DescendantFocus(app.panes.collectives))  # late, as on a busy machine: it had the focus before
        await pilot.pause()
        assert app.layout.pane == "console"
        assert app.panes.console.line.value == ""
        await pilot.press("c")
        await until(lambda: "› continue" in "\n".join(app.panes.console.log_pane.lines_said), pilot)
        assert app.panes.console.line.value == ""
        app.panes.console.log_pane.display = False  # what has the keys goes, and something else gets them
        await until(lambda: app.focused is not app.panes.console.log_pane, pilot)
        assert app.focused is not app.panes.console.line
        await pilot.press("1", "8")
        await pilot.click("#line")
        await pilot.press("c", "c")
        assert app.panes.console.line.value == "cc", "it was gone into"

    screen_of_app(debugging(tmp_path, path), leave, size)
    assert Sidecar(beside(path)).read().panes[-1] == "console"
    screen_of_app(debugging(tmp_path / "two", path), again, size)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_in_place_of_a_restored_output_that_is_empty_is_the_table(tmp_path: Path, size: tuple[int, int]) -> None:
    """The first screen was blank."""
    path = tmp_path / "capsule"
    Sidecar(beside(path)).write(Kept(history=("print 1",), panes=("memory", "stops", "output")))

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        assert app.layout.pane == "collectives" and app.panes.collectives.display
        assert "stops" in app.layout.chosen and app.focused is app.panes.collectives

    screen_of_app(debugging(tmp_path, path), part, size)


def test_while_the_replay_starts_nobody_says_that_there_are_no_breakpoints(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        pane = app.panes.stops
        app.post_message(StateChanged(State(phase=Phase.STARTING)))
        await until(lambda: "are set once the rank is there" in str(pane.body.content), pilot)
        assert "no breakpoints" not in str(pane.body.content) and "0" not in str(pane.border_subtitle)
        app.post_message(StateChanged(State(phase=Phase.STOPPED)))
        await until(lambda: "no breakpoints, watch expressions" in str(pane.body.content), pilot)
        assert str(pane.border_subtitle) == "0 breakpoints"

    screen_of_app(looking(tmp_path / "one" / "capsule"), part)
