"""All ranks of a recorded job on one screen, by its keys and what it ends with."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from played import until
from prismdbg_tui.drawing.finding_signs import SIGNS
from prismdbg_tui.recorded_job import words
from prismdbg_tui.recorded_job.app import JobApp, OpenRank
from prismdbg_tui.recorded_job.help_sheet import JobHelp
from prismdbg_tui.recorded_job.keys import JOB_ACTIONS, TABLE
from prismdbg_tui.recorded_job.plain_job import write_job
from prismdbg_tui.session.keymap import read_keys
from prismdbg_tui.start import WEB_DRIVER, recorded_job
from shown import on_screen, raising, running, told
from textual.pilot import Pilot
from textual.worker import WorkerFailed

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.errors import CapsuleError, RankLost
from prismdbg.jobs.run_overview import RunOverview, overview_of
from prismdbg.jobs.storage.run_report import RankState
from prismdbg.model.moment import Moment
from tests.unit.logs import MILLISECOND_NS, Job, put_on_device

Play = Callable[[JobApp, Pilot[OpenRank | None]], Awaitable[None]]


def job(world: int = 4, *, hostile: str = "", is_running: bool | None = False) -> RunOverview:
    """Rank 2 sends NaN at 1.1 and comes late; rank 3 raises."""
    logs = Job(world)
    logs.steps(1)
    logs.call(sends_nan={2}, receives_nan=set(range(world)), late_ns={2: 50 * MILLISECOND_NS})
    logs.raises(3, text=f"no{hostile}")
    states = {rank: state_of(rank, hostile) for rank in range(world)}
    evidence = Evidence(logs=logs.logs, world_size=world, is_running=is_running)
    return overview_of(Path("run"), evidence, states, {1: 1 << 30})


def state_of(rank: int, hostile: str = "") -> RankState:
    return RankState(
        name=str(rank), state=f"ended{hostile}", moment="1.1", collectives=2, in_flight=0, steps=1, window="-",
        log_bytes=1, payload_bytes=0, lost="",
    )  # fmt: skip


def with_telemetry() -> RunOverview:
    shown = job()
    sensors = {1: {"CPU": 0.613, "queue": 0.27}, 2: {"CPU": 1.0}}
    return replace(shown, ranks=tuple(replace(row, sensors=sensors.get(row.rank, {})) for row in shown.ranks))


def play(
    part: Play, shown: RunOverview | None = None, *, size: tuple[int, int] = (120, 36), app: JobApp | None = None
) -> JobApp:
    shown = shown or job()
    app = app or JobApp(shown, lambda: shown)

    async def run() -> None:
        async with running(app, size) as pilot:
            await pilot.pause()
            await part(app, pilot)

    asyncio.run(run())
    return app


def test_waits_of_some_calls_of_another_tools_files_are_marked_as_such() -> None:
    row = job().ranks[0]
    partly = replace(row, waited_ns=2_000_000, awaited_ns=0, unknown_waits=3)
    assert [cell.plain for cell in words.cells(partly, (), "", partly=True)][5:7] == ["≥ 2.0 ms", "?"]
    assert [cell.plain for cell in words.cells(partly, (), "")][5:7] == ["2.0 ms", "-"]
    whole = replace(partly, unknown_waits=0)
    assert [cell.plain for cell in words.cells(whole, (), "", partly=True)][5:7] == ["2.0 ms", "-"]


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60)])
def test_findings_and_ranks(size: tuple[int, int]) -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        text = on_screen(app)
        assert "4 ranks" in text and "8 collectives" in text
        assert "rank 2 sent the first NaN or Inf" in text and "ValueError: no" in text
        assert "50.0 ms" in text and "1.0 GiB" in text
        assert ("inside a collective" in text) == (size[0] > 80)

    play(part, size=size)


def test_a_finding_is_shown_whole_where_there_is_room() -> None:
    """Each was one line that ended with an ellipsis, above lines that were empty."""

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        text = on_screen(app)
        assert "…" not in text.partition("rank  state")[0]
        assert "train.py:42 in main" in " ".join(text.split())

    play(part, size=(80, 24))


def test_where_the_ranks_need_the_room_only_the_chosen_finding_is_whole() -> None:
    texts = [f"{'rank 0 waits ' * 8}{word}" for word in ("first", "second", "third")]
    below = ("in a line",)
    found = [SimpleNamespace(certainty=Certainty.CERTAIN, text=t, lines=below, folded_lines=below) for t in texts]
    shown: Any = SimpleNamespace(diagnosis=SimpleNamespace(verdicts=found))
    colors = {ink: "red" for _, ink in SIGNS.values()}
    lines = words.findings(shown, 1, colors, 6, 60).text.plain.splitlines()
    assert len(lines) == 6 and all(len(line) <= 60 for line in lines)
    assert all(lines[at].startswith("  ✕ certain rank 0 waits") and lines[at].endswith("rank …") for at in (0, 5))
    assert lines[1].startswith("▸ ✕ certain ") and lines[3].endswith("second") and lines[4] == "      in a line"
    roomy = words.findings(shown, 1, colors, 80, 60).text.plain
    assert "…" not in roomy and all(word in roomy for word in ("first", "second", "third"))


@pytest.mark.parametrize(
    ("below", "room", "is_whole"),
    [
        (["one", "two", "three"], 10, True),
        (["one", "two", "three"], 3, False),  # its last line is cut
        (['  File "/job/train.py", line 3, in main'], 10, False),  # shown without the folder
        (['  File "train.py", line 3, in main'], 10, True),
    ],
)
def test_what_is_not_seen_of_a_finding_is_said_to_be_there(below: list[str], room: int, is_whole: bool) -> None:
    found = [SimpleNamespace(certainty=Certainty.CERTAIN, text="it failed", lines=below, folded_lines=below)]
    shown: Any = SimpleNamespace(diagnosis=SimpleNamespace(verdicts=found))
    assert words.findings(shown, 0, {ink: "red" for _, ink in SIGNS.values()}, room, 60).is_whole is is_whole


def long_traceback(frames: int) -> list[str]:
    """The program's own line is the third one, above `frames` of libraries."""
    library = "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py"
    places = [("/usr/lib/python3.11/runpy.py", 88, "_run"), ("/usr/lib/python3.11/runpy.py", 196, "_run_code")]
    places += [("/job/train.py", 42, "main"), *((library, 100 + at, "_call_impl") for at in range(frames))]
    lines = [f'  File "{file}", line {line}, in {name}\n    self.call({line})\n' for file, line, name in places]
    return ["Traceback (most recent call last):\n", *lines, "ValueError: no\n"]


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
@pytest.mark.parametrize("world", [4, 40])
def test_a_long_traceback_leaves_all_findings_on_the_screen_and_a_key_shows_it_whole(
    size: tuple[int, int], world: int
) -> None:
    """Its frames filled the pane, and other findings, the exception itself and the ranks were beyond it."""
    logs = Job(world)
    logs.steps(1)
    logs.call(sends_nan={2}, receives_nan=set(range(world)), late_ns={2: 50 * MILLISECOND_NS})
    logs.note(3, "incident", incident="exception", type="ValueError", text="no", traceback=long_traceback(23))
    states = {rank: state_of(rank) for rank in range(world)}
    shown = overview_of(Path("run"), Evidence(logs=logs.logs, world_size=world), states, {})

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        while app.job.diagnosis.verdicts[app.finding].kind != "raised":
            await pilot.press("n")
        await until(lambda: "… 2 frames" in on_screen(app), pilot)
        text = on_screen(app)
        assert (
            "raised at 1.1: ValueError: no" in text
            and "rank 2 sent the first NaN" in text
            and "in _call_impl" not in text
        )
        assert 'File "train.py", line 42, in main' in text and "f: the whole finding" in text
        assert len([line for line in text.splitlines() if line.split()[1:2] == ["ended"]]) >= 4
        if world == 4:
            assert "… 23 frames" in text and "  ValueError: no" in text
        await pilot.press("f")
        await until(lambda: 'File "/usr/lib/python3.11/runpy.py", line 88, in _run' in on_screen(app), pilot)
        await pilot.press("end")
        await until(lambda: "line 122, in _call_impl" in on_screen(app), pilot)
        await pilot.press("escape")
        await until(lambda: "line 122" not in on_screen(app), pilot)

    play(part, shown, size=size)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_the_line_below_the_table_says_for_whom_the_rank_waited_and_when(size: tuple[int, int]) -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("home")
        await until(lambda: "rank 0 waited for rank 2 50.0 ms" in on_screen(app).splitlines()[-2], pilot)
        assert on_screen(app).splitlines()[-2].endswith(" at 1.1")
        await pilot.press("down", "down")
        await until(lambda: "rank 2 no wait for another rank" in on_screen(app).splitlines()[-2], pilot)

    play(part, size=size)


def test_as_many_ranks_that_it_waited_for_as_there_is_room_for() -> None:
    logs = Job(5)
    for late in (4, 4, 3, 2, 1):
        logs.call(late_ns={late: 50 * MILLISECOND_NS})
    evidence = Evidence(logs=logs.logs, world_size=5)
    shown = overview_of(Path("run"), evidence, {rank: state_of(rank) for rank in range(5)}, {})
    wide, narrow = (words.waits(shown.ranks[0], shown, width).plain for width in (200, 80))
    assert wide.count(" · ") == 3 and narrow.count(" · ") == 1 and len(narrow) <= 80
    assert narrow == " rank 0 waited for rank 4 100 ms ██▃    at 0.1 · rank 1 50.0 ms     ▁█ at 0.5"


def test_without_clocks_that_agree_nothing_is_said_of_waits() -> None:
    shown = replace(job(), clocks_agree=False)
    shown = replace(shown, ranks=tuple(replace(row, waited_for=()) for row in shown.ranks))
    assert "clocks may differ" in words.waits(shown.ranks[0], shown, 80).plain


def test_calls_on_a_device_and_a_missing_log_do_not_say_that_nobody_waited() -> None:
    logs = Job(3)
    logs.group("1", (0, 2))
    logs.call(late_ns={2: 50 * MILLISECOND_NS})
    evidence = Evidence(logs={rank: logs.logs[rank] for rank in (0, 2)}, world_size=3)
    assert without_waits(evidence) == ["unknown", "unknown"]
    logs.call(group="1", late_ns={2: 50 * MILLISECOND_NS})
    evidence = Evidence(logs={rank: logs.logs[rank] for rank in (0, 2)}, world_size=3)
    assert without_waits(evidence) == ["rank 2 · 1 unknown", "no wait in 1, 1 unknown"], (
        "known of the group of which both logs are there"
    )
    put_on_device(logs)
    assert without_waits(Evidence(logs=logs.logs, world_size=3)) == ["unknown"] * 3


def test_a_group_on_a_device_does_not_say_that_nobody_waited_in_it() -> None:
    logs = Job(3)
    logs.group("1", (0, 2))
    for _ in range(2):
        logs.call(group="1", late_ns={2: 50 * MILLISECOND_NS})
    put_on_device(logs)
    logs.call(late_ns={2: 50 * MILLISECOND_NS})
    evidence = Evidence(logs=logs.logs, world_size=3)
    shown = overview_of(Path("run"), evidence, {rank: state_of(rank) for rank in range(3)}, {})
    assert [words.waits(row, shown, 120).plain.strip() for row in shown.ranks] == [
        f"rank 0 waited for rank 2 50.0 ms {words.strip_of(shown.ranks[0].waited_for[0].when, 16)} at 0.3 · "
        "waits unknown in 2 collectives",
        f"rank 1 waited for rank 2 50.0 ms {words.strip_of(shown.ranks[1].waited_for[0].when, 16)} at 0.1",
        "rank 2 no wait for another rank in 1 collective; unknown in 2 on a device, asynchronous, or not ended in all "
        "logs",
    ]
    ends = {
        160: "2 collectives: on a device, asynchronous, or not ended in all logs",
        80: "collectives",
        70: "2 unknown",
    }
    for width, end in ends.items():
        line = words.waits(shown.ranks[0], shown, width).plain
        assert line.endswith(end) and len(line) <= width, "no word is cut"
    assert words.waits(shown.ranks[0], shown, 50).plain.endswith("at 0.3")


def without_waits(evidence: Evidence) -> list[str]:
    """By rank what its line says of its waits."""
    shown = overview_of(Path("run"), evidence, {rank: state_of(rank) for rank in evidence.logs}, {})
    lines = [words.waits(row, shown, 120).plain for row in shown.ranks]
    said = {
        "waits are unknown: on a device, asynchronous": "unknown",
        "no wait for another rank in 1 collective; unknown in 1 on a device": "no wait in 1, 1 unknown",
        "no wait for another rank in collectives that completed": "no wait",
        "at 0.2 · waits unknown in 1 collective": "rank 2 · 1 unknown",
    }
    return [next((short for text, short in said.items() if text in line), line) for line in lines]


def test_enter_opens_the_rank_at_the_finding_that_is_about_it() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        kinds = [verdict.kind for verdict in app.job.diagnosis.verdicts]
        while app.job.diagnosis.verdicts[app.finding].ranks[0] != 2:
            await pilot.press("n")
        assert app.rank == 2, kinds
        await pilot.press("enter")

    assert play(part).return_value == OpenRank(2, False, Moment(1, 1))


def test_another_rank_is_opened_where_it_opens_by_itself() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("home", "down", "D")

    assert play(part).return_value == OpenRank(1, True, None)


def test_every_rank_is_opened_at_the_moment_that_was_asked_for_until_another_finding_is_chosen() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        assert "opens ranks at 0.1" in on_screen(app)
        await pilot.press("home", "enter")

    assert play(part, app=JobApp(job(), job, moment=Moment(0, 1))).return_value == OpenRank(0, False, Moment(0, 1))

    async def another(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("n")
        await until(lambda: "opens ranks at" not in on_screen(app), pilot)
        await pilot.press("home", "enter")

    assert play(another, app=JobApp(job(), job, moment=Moment(0, 1))).return_value == OpenRank(0, False, None)


def test_why_a_rank_could_not_be_opened_is_said_on_the_screen_that_is_shown_again() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await until(lambda: told(app) == ["rank 0 has ended\ntry: prismdbg why"], pilot)
        await pilot.press("q")

    assert play(part, app=JobApp(job(), job, refused="rank 0 has ended\ntry: prismdbg why")).return_value is None


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (RankLost("rank 2 has ended", hint="prismdbg why"), "rank 2 has ended\ntry: prismdbg why"),
        (
            PermissionError(13, "Permission denied", "/run/capsules"),
            "/run/capsules: Permission denied\ntry: run this as the owner, or ask the owner for permission",
        ),
    ],
)
def test_an_error_while_a_rank_is_opened_leads_back_to_all_ranks(
    monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    """With the moment that was asked for, and the rank under the cursor."""
    screens: list[JobApp] = []

    def shown(app: JobApp) -> OpenRank | None:
        screens.append(app)
        return OpenRank(2, False, app.wanted) if len(screens) == 1 else None

    def open_rank(rank: int, runs: bool, at: Moment | None) -> None:
        assert (rank, runs, at) == (2, False, Moment(0, 1))
        raise error

    monkeypatch.setenv("TEXTUAL_DRIVER", WEB_DRIVER)
    monkeypatch.setattr(JobApp, "run", shown)
    assert recorded_job(job, open_rank, at=Moment(0, 1)) == 0
    assert (screens[1].rank, screens[1].wanted) == (2, Moment(0, 1))

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await until(lambda: told(app) == [why], pilot)

    play(part, app=screens[1])


def test_in_a_browser_the_page_of_a_rank_is_that_of_the_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    pages: list[str] = []
    monkeypatch.setattr(JobApp, "is_web", True)
    monkeypatch.setattr(JobApp, "open_url", lambda _app, url, new_tab: pages.append(url))

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        while app.job.diagnosis.verdicts[app.finding].ranks[0] != 2:
            await pilot.press("n")
        await pilot.press("enter", "home", "D")
        await until(lambda: len(pages) == 2, pilot)

    play(part)
    assert pages == ["/open/2/at/1.1", "/debug/0"]


def test_sorting_keeps_the_rank_under_the_cursor() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("home", "down")
        assert app.rank == 1
        orders = []
        for _ in range(4):
            await pilot.press("s")
            await pilot.pause()
            orders.append([row.rank for row in app.rows])
            assert app.rank == 1 and app.rows[app.table.cursor_row].rank == 1
        assert orders == [[0, 1, 3, 2], [2, 0, 1, 3], [1, 0, 2, 3], [0, 1, 2, 3]]

    play(part)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_the_header_says_the_order_and_nothing_covers_the_panes(size: tuple[int, int]) -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        for order in ("waited", "awaited", "memory"):
            await pilot.press("s")
            await until(lambda order=order: f"sorted by {order}" in str(app.head.content), pilot)  # type: ignore[misc]
            assert f"sorted by {order}" in on_screen(app)
        await pilot.press("s")
        await until(lambda: "sorted by" not in str(app.head.content), pilot)
        assert told(app) == []

    play(part, size=size)


def test_it_is_read_again_and_says_where_it_cannot_be() -> None:
    shown = [job(), job(8)]

    def read() -> RunOverview:
        if not shown:
            raise CapsuleError("the run is gone")
        return shown.pop(0)

    app = JobApp(read(), read)

    async def run() -> None:
        async with running(app, (120, 36)) as pilot:
            await pilot.press("r")
            await until(lambda: len(app.job.ranks) == 8, pilot)
            await until(lambda: app.table.row_count == 8, pilot)
            await pilot.press("r")
            await until(lambda: any("the run is gone" in note for note in told(app)), pilot)
            assert len(app.job.ranks) == 8
            await pilot.press("q")

    asyncio.run(run())
    assert app.return_value is None


@pytest.mark.parametrize("is_running", [True, None])
def test_after_a_failed_reading_a_job_that_may_run_is_read_again(
    monkeypatch: pytest.MonkeyPatch, is_running: bool | None
) -> None:
    """A file that was just being replaced, and the screen showed the same for ever."""
    monkeypatch.setattr("prismdbg_tui.recorded_job.app._LEAST_AGAIN_S", 0.01)
    reads = iter([raising(CapsuleError("not now")), lambda: job(8)])

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await until(lambda: len(app.job.ranks) == 8, pilot)
        assert any("not now" in note for note in told(app))

    play(part, app=JobApp(job(is_running=is_running), lambda: next(reads)()))


def test_readings_by_key_are_no_further_readings_by_the_clock() -> None:
    set_timers: list[Any] = []

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        set_timer = app.set_timer
        app.set_timer = lambda *given: set_timers.append(set_timer(*given)) or set_timers[-1]  # type: ignore[func-returns-value, method-assign]
        for readings in (1, 2, 3):
            await pilot.press("r")
            await until(lambda readings=readings: len(set_timers) == readings, pilot)  # type: ignore[misc]
        assert [timer._task is None for timer in set_timers] == [True, True, False], "stopped"

    shown = job(is_running=True)
    play(part, app=JobApp(shown, lambda: shown))


def test_an_older_reading_that_took_longer_is_not_shown() -> None:
    newer_is_shown, begun, told_of = threading.Event(), list[int](), list[object]()

    def read() -> RunOverview:
        begun.append(len(begun))
        if begun[-1]:
            return job(8)
        assert newer_is_shown.wait(20)
        return job(6)

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        call = app.call_from_thread
        app.call_from_thread = lambda *given: told_of.append(call(*given))  # type: ignore[method-assign, assignment]
        await pilot.press("r")
        await until(lambda: begun, pilot)
        await pilot.press("r")
        await until(lambda: len(app.job.ranks) == 8, pilot)
        newer_is_shown.set()
        await until(lambda: len(told_of) == 2, pilot)
        assert len(app.job.ranks) == 8

    play(part, app=JobApp(job(), read))


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (CapsuleError("no log", hint="record again"), "no log\ntry: record again"),
        (
            FileNotFoundError(2, "No such file or directory", "/run/ranks/0"),
            "/run/ranks/0 is gone: the run was removed or moved\ntry: use the new path of the run, if it has one",
        ),
        (OSError(5, "Input/output error", "/run"), "/run: Input/output error\ntry: check the disk"),
    ],
)
def test_why_it_cannot_be_read_again_and_what_to_do(error: Exception, why: str) -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("r")
        await until(lambda: told(app) == [f"the run cannot be read again: {why}"], pilot)
        assert len(app.job.ranks) == 4

    play(part, app=JobApp(job(), raising(error)))


def test_an_error_that_nobody_has_foreseen_ends_the_screen() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("r")
        await until(lambda: not app.is_running, pilot)

    with pytest.raises(WorkerFailed, match="timed out"):
        play(part, app=JobApp(job(), raising(TimeoutError("timed out"))))


def test_help_names_every_key() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("question_mark")
        await until(lambda: isinstance(app.screen, JobHelp), pilot)
        assert isinstance(app.screen, JobHelp)
        cells = [str(cell) for column in app.screen.of_keys().columns for cell in column.cells]
        assert all(action.title in cells for action in JOB_ACTIONS)
        assert "inside a" in on_screen(app), "what the columns are, beside them"
        await pilot.press("end")
        await until(lambda: f"{app.keys_shown['drop']} drop " in on_screen(app), pilot)  # as keys.toml takes it
        await pilot.press("escape")
        await until(lambda: not isinstance(app.screen, JobHelp), pilot)

    play(part)


def test_at_80_columns_help_has_one_column_whose_keys_do_not_wrap() -> None:
    """Two text columns were as wide as each other and nearly every line of both was broken."""

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("question_mark")
        await until(lambda: "next theme" in on_screen(app), pilot)
        lines = on_screen(app).splitlines()
        whole = [action.title for action in JOB_ACTIONS if any(action.title in line for line in lines)]
        assert len(whole) == len(JOB_ACTIONS) - 1, "all but the longest one"
        assert "ctrl+p: every action by name" in on_screen(app)
        assert "Columns" in on_screen(app)

    play(part, size=(80, 36))


@pytest.mark.parametrize(("size", "has_two"), [((120, 36), True), ((100, 60), True), ((80, 60), False)])
def test_what_columns_mean_is_wrapped_at_the_width_of_the_screen_alone(size: tuple[int, int], has_two: bool) -> None:
    """Lines that were broken by hand were broken again, each after a word or two."""

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("question_mark")
        await until(lambda: "inside a" in on_screen(app) and "awaited" in on_screen(app), pilot)
        lines = [line.ljust(size[0]) for line in on_screen(app).splitlines()]
        first = next(at for at, line in enumerate(lines) if "the last collective that" in line)
        begins = lines[first].index("the last collective that")
        last = next(at for at, line in enumerate(lines) if at > first and "they wait for it" in line)
        meanings = [line[begins:] for line in lines[first : last + 1]]
        assert all(text[0] != " " and lines[first + at][begins - 1] == " " for at, text in enumerate(meanings))
        assert isinstance(app.screen, JobHelp)
        cells = [str(cell) for column in app.screen._beside().columns for cell in column.cells]
        assert not any("\n" in cell or "  " in cell for cell in cells)
        assert has_two is ("open this rank" in lines[first - 1] + lines[first])

    play(part, size=size)


def test_what_a_rank_says_does_not_steer_the_terminal() -> None:
    shown = job(hostile="\x1b]0;taken\x07[bold]")

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        text = on_screen(app)
        assert "\x1b" not in text and "\x07" not in text and "[bold]" in text

    play(part, shown)
    out = io.StringIO()
    write_job(shown.ranks, out)
    assert "\x1b" not in out.getvalue()


def test_as_lines_of_text() -> None:
    out = io.StringIO()
    write_job(job().ranks, out)
    header, *rows = [line.split("\t") for line in out.getvalue().splitlines()]
    assert len(rows) == 4 and {len(row) for row in rows} == {len(header)}
    assert dict(zip(header, rows[2], strict=True))["awaited_ns"] == str(50 * MILLISECOND_NS)
    assert dict(zip(header, rows[0], strict=True))["peak_bytes"] == ""


def test_as_lines_waits_on_a_device_are_empty() -> None:
    logs = Job(2)
    logs.call(late_ns={1: 50 * MILLISECOND_NS})
    put_on_device(logs)
    evidence = Evidence(logs=logs.logs, world_size=2)
    out = io.StringIO()
    write_job(overview_of(Path("run"), evidence, {rank: state_of(rank) for rank in range(2)}, {}).ranks, out)
    header, *rows = [line.split("\t") for line in out.getvalue().splitlines()]
    cells = [dict(zip(header, row, strict=True)) for row in rows]
    assert [(row["waited_ns"], row["awaited_ns"], row["unknown_waits"]) for row in cells] == [("", "", "1")] * 2


def test_of_another_tools_files_no_rank_is_offered() -> None:
    shown = replace(job(is_running=None), is_imported=True)

    async def part(app: JobApp, _pilot: Pilot[OpenRank | None]) -> None:
        keys, head = str(app.keybar.content), str(app.head.content)
        assert "open rank" not in keys and "debug" not in keys and "t map" in keys
        assert "imported" in head and "end unknown" in head and "ended" not in head

    play(part, shown)


def test_keys_have_a_table_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('next = "f10"\n[job]\nnext_order = "o"\n')
    assert read_keys(file, JOB_ACTIONS, TABLE) == {"next_order": "o"}


@pytest.mark.parametrize("width", [0, 1, 7, 240, 500])
def test_a_strip_has_its_width_and_hides_nothing(width: int) -> None:
    inside = np.zeros(240)
    inside[120] = 0.01
    strip = words.strip_of(inside, width)
    assert len(strip) == width and (not width or "▁" in strip)
    assert set(words.strip_of(np.ones(240), width)) <= {"█"}


def test_what_the_sensors_read_has_columns_of_its_own() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        titles = [str(column.label) for column in app.table.ordered_columns]
        assert titles[7:10] == ["memory", "CPU", "queue"]
        assert [str(cell) for cell in app.table.get_row("1")[8:10]] == ["61%", "27%"]
        assert [str(cell) for cell in app.table.get_row("2")[8:10]] == ["100%", "-"]

    play(part, with_telemetry(), size=(160, 40))


@pytest.mark.parametrize(
    ("size", "last"), [((80, 24), "CPU"), ((87, 24), "queue"), ((60, 24), "waited"), ((40, 24), "last")]
)
def test_a_column_is_shown_whole_or_not_at_all(size: tuple[int, int], last: str) -> None:
    """A share of 25 % of which only `2` was seen read as 2 %."""

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        titles = [str(column.label) for column in app.table.ordered_columns]
        assert titles[-1] == last
        (heading,) = (line for line in on_screen(app).splitlines() if line.lstrip().startswith("rank  state"))
        assert heading.split() == titles
        assert app.table.virtual_size.width <= size[0]

    play(part, with_telemetry(), size=size)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_why_there_is_no_map_of_all_ranks_is_on_the_screen(size: tuple[int, int]) -> None:
    why = "only the ranks that ran: 14 ranks have no class; the first is rank 1 (pp=0 tp=1)"

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        shown = on_screen(app)
        assert why in " ".join(shown.split()) and " emulated " in shown and " recorded " not in shown

    play(part, app=JobApp(job(), job, note=why), size=size)


def test_columns_come_and_go_with_the_width() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.resize_terminal(160, 40)
        await pilot.pause()
        assert [str(column.label) for column in app.table.ordered_columns][-2:] == ["queue", "inside a collective"]
        await pilot.resize_terminal(60, 24)
        await pilot.pause()
        assert str(app.table.ordered_columns[-1].label) == "waited"

    play(part, with_telemetry(), size=(80, 24))


def test_a_job_without_telemetry_has_no_columns_for_it() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        titles = [str(column.label) for column in app.table.ordered_columns]
        assert "CPU" not in titles and titles[-1] == "inside a collective"

    play(part, size=(160, 40))


def test_as_lines_shares_that_were_not_read_are_empty() -> None:
    output = io.StringIO()
    write_job(with_telemetry().ranks, output)
    header, *rows = (line.split("\t") for line in output.getvalue().splitlines())
    assert header[-3:] == ["CPU", "queue", "GPU"]
    assert [row[-3:] for row in rows][:3] == [["", "", ""], ["0.613", "0.270", ""], ["1.000", "", ""]]
