"""The map of all ranks' time: how it folds, what it draws, and its keys on the screen of a recorded job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from played import until
from prismdbg_tui.drawing import figures
from prismdbg_tui.recorded_job import time_words
from prismdbg_tui.recorded_job.app import JobApp, OpenRank
from prismdbg_tui.recorded_job.time_drawing import Look, legend, map_cells, row_title, ruler
from prismdbg_tui.recorded_job.time_view import TimePlace, TimeView, time_view
from prismdbg_tui.start import WEB_DRIVER, recorded_job
from shown import on_screen, running
from textual.pilot import Pilot

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.time_parts import PARTS
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.jobs.run_overview import RunOverview, overview_of
from prismdbg.jobs.storage.run_report import RankState
from prismdbg.model.moment import Moment
from tests.unit.logs import MILLISECOND_NS, Job, put_on_device

LATE_NS = 200 * MILLISECOND_NS
BOTH_SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 36)])
NO_COLORS = Look(
    background="#000000", text="#ffffff", between="#111111", inside="#0000ff", waiting="#ffff00", awaited="#ff0000",
    colorless=True,
)  # fmt: skip

Play = Callable[[JobApp, Pilot[OpenRank | None]], Awaitable[None]]


def overview(job: Job, ended_wall_ns: int = 0) -> RunOverview:
    evidence = Evidence(logs=job.logs, world_size=len(job.ranks), ended_wall_ns=ended_wall_ns)
    states = {
        rank: RankState(
            name=str(rank), state="ended", moment="1.1", collectives=2, in_flight=0, steps=1, window="-", log_bytes=1,
            payload_bytes=0, lost="",
        )
        for rank in job.ranks
    }  # fmt: skip
    return overview_of(Path("run"), evidence, states, {})


def late_job(world: int = 4) -> RunOverview:
    """Rank 2 is late in the first half, and the last rank in the second."""
    job = Job(world)
    for late in (2, 2, world - 1, world - 1):
        job.call(late_ns={late: LATE_NS})
    return overview(job)


def hung_job() -> RunOverview:
    job = Job(3)
    job.call()
    job.raises(2)
    job.call(without={2}, done=False)
    return overview(job, job.now_ns + 60_000 * MILLISECOND_NS)


def play(part: Play, shown: RunOverview, size: tuple[int, int] = (80, 24), *, app: JobApp | None = None) -> JobApp:
    """With the map in front."""
    app = app or JobApp(shown, lambda: shown, at=0)

    async def run() -> None:
        async with running(app, size) as pilot:
            await pilot.press("t")
            await until(lambda: app.map.view is not None and app.map.size.width > 40, pilot)
            await part(app, pilot)

    asyncio.run(run())
    return app


def glyphs(view: TimeView, line: int, cursor: tuple[int, int] = (-1, 0)) -> str:
    return "".join(glyph for glyph, _ in map_cells(view, line, cursor, NO_COLORS))


# how it folds and what it draws


def test_each_rank_has_a_row_where_there_is_room() -> None:
    view = time_view(late_job().ranks, 4, 24)
    assert (view.rows, view.cells, view.per_row, view.height) == (4, 24, 1, 1)
    assert [row_title(view, line) for line in range(5)] == ["0", "1", "2", "3", ""]
    drawn = [glyphs(view, line) for line in range(4)]
    assert set(drawn[0][:-1]) == {"█"} and drawn[2].startswith("!" * 11) and drawn[2][13:-1] == "█" * 10
    assert drawn[3].startswith("█" * 11) and drawn[3][13:-1] == "!" * 10
    assert glyphs(view, 4) == ""


def test_few_ranks_have_higher_rows_and_bars_of_finer_height() -> None:
    view = time_view(late_job().ranks, 12, 1)
    assert view.height == 3 and [row_title(view, line) for line in range(4)] == ["0", "", "", "1"]
    half = view.waiting[2, 0]
    assert 0.4 < half < 0.6
    assert [glyphs(view, line) for line in (6, 7, 8)] == ["·", "!", "!"]


def test_more_ranks_than_lines_share_rows_and_the_late_one_is_seen() -> None:
    view = time_view(late_job(40).ranks, 10, 24)
    assert (view.rows, view.per_row, view.height) == (10, 4, 1)
    assert [row_title(view, line) for line in (0, 9)] == ["0-3", "36-39"]
    assert glyphs(view, 0).startswith("!" * 11) and glyphs(view, 0)[13:-1] == "█" * 10
    assert glyphs(view, 9)[13:-1] == "!" * 10 and set(glyphs(view, 5)[:-1]) == {"█"}
    assert view.at(0, 3).rank == 2, "the one that the cell shows"
    assert view.moved(TimePlace(5, 0), -1, 0).rank == 2 and view.moved(TimePlace(5, 0), 0, 1).rank == 5


def test_ranks_that_do_not_divide_evenly_are_all_there() -> None:
    view = time_view(late_job(11).ranks, 4, 24)
    assert [len(view.ranks_in(row)) for row in range(view.rows)] == [3, 3, 3, 2]
    assert view.row_of(10) == 3 and view.row_of(99) == -1


@pytest.mark.parametrize("width", [0, 1, 7, 100, PARTS, 500])
def test_cells_cover_all_of_the_time_once(width: int) -> None:
    view = time_view(late_job().ranks, 4, width)
    parts = [part for cell in range(view.cells) for part in range(PARTS)[view.parts_in(cell)]]
    assert parts == list(range(PARTS))
    assert [view.cell_of(part) for part in (0, PARTS - 1)] == [0, view.cells - 1]


def test_the_cursor_stays_on_the_map() -> None:
    view = time_view(late_job().ranks, 4, 24)
    assert view.moved(TimePlace(0, 0), -1, -1) == TimePlace(0, 0)
    assert view.moved(TimePlace(3, PARTS - 1), 1, 1) == TimePlace(3, PARTS - 1)
    assert view.moved(TimePlace(1, 0), 0, 1) == TimePlace(1, PARTS // 24)
    assert view.beside(TimePlace(1, 7), 1) == TimePlace(2, 7) and view.beside(TimePlace(0, 7), -1) == TimePlace(0, 7)


def test_the_longest_wait_of_all_ranks() -> None:
    job = Job(4)
    job.group("1", (1, 2, 3))
    job.call(late_ns={2: LATE_NS})
    job.call(group="1", late_ns={1: 2 * LATE_NS, 2: LATE_NS})
    place = time_view(overview(job).ranks, 4, 24).longest()
    assert place.rank == 3 and PARTS // 4 < place.part < PARTS // 2


def test_a_short_wait_in_a_long_time_is_seen() -> None:
    job = Job(2)
    job.call(late_ns={1: MILLISECOND_NS})
    job.steps(1, lasting_ns=60_000 * MILLISECOND_NS)
    job.call()
    view = time_view(overview(job).ranks, 2, 24)
    assert glyphs(view, 0)[0] == "▁" and glyphs(view, 1)[0] == "!"
    assert glyphs(view, 0)[12] == "·" == glyphs(view, 1)[12]


def test_what_no_log_covers_is_empty() -> None:
    view = time_view(hung_job().ranks, 3, 24)
    assert glyphs(view, 0)[5:] == "█" * 19 and glyphs(view, 2)[5:] == "!" * 19
    assert glyphs(time_view(ended_job().ranks, 2, 24), 1)[5:].isspace()


def ended_job() -> RunOverview:
    """The last call of rank 1 is long ago."""
    job = Job(2)
    job.steps(1, lasting_ns=1000 * MILLISECOND_NS)
    job.call(only={0})
    return overview(job)


def test_time_in_collectives_is_no_wait_where_waits_are_not_known() -> None:
    job = Job(2)
    job.call(late_ns={1: LATE_NS})
    put_on_device(job)
    assert set(glyphs(time_view(overview(job).ranks, 2, 24), 0)) == {"░"}


def test_colors_are_those_of_what_the_rank_did() -> None:
    view = time_view(late_job().ranks, 4, 24)
    look = replace(NO_COLORS, colorless=False)
    assert {style.color.name for _, style in map_cells(view, 2, (-1, 0), look)[:11] if style.color} == {"#ff0000"}
    assert {style.color.name for _, style in map_cells(view, 0, (-1, 0), look)[:11] if style.color} == {"#ffff00"}
    ended = map_cells(time_view(ended_job().ranks, 2, 24), 1, (-1, 0), look)
    assert {style.bgcolor.name for _, style in ended[5:] if style.bgcolor} == {"#000000"}
    glyph, style = map_cells(view, 0, (0, 3), look)[3]
    assert glyph == "◆" and style.bgcolor is not None and style.bgcolor.name == "#ffff00"
    assert all(ink in legend(look) for ink in ("#0000ff", "#ffff00", "#ff0000", "#111111"))


@pytest.mark.parametrize(
    ("lasted_s", "labels"),
    [
        (0, ["0"]),
        (0.001, ["0", "200 µs", "400 µs", "600 µs", "800 µs"]),
        (50, ["0", "10 s", "20 s", "30 s", "40 s"]),
        (700, ["0", "2 min", "4 min", "6 min", "8 min", "10 min"]),
        (30 * 3600, ["0", "12 h", "24 h"]),
        (90 * 24 * 3600, ["0", "384 h", "768 h", "1152 h", "1536 h", "1920 h"]),
    ],
)
def test_times_above_the_map(lasted_s: float, labels: list[str]) -> None:
    text = ruler(round(lasted_s * 1e9), 70, 69)
    assert text.endswith("▼") and len(text) == 70
    assert [each.strip() for each in text[:-1].split("   ") if each.strip()] == labels


def test_the_cursor_covers_no_part_of_a_time_above_the_map() -> None:
    texts = [ruler(3_700_000_000, 70, cursor).replace("▼", " ").split() for cursor in range(70)]
    assert all({*text} <= {"0", "1", "2", "3", "s"} for text in texts)
    assert sorted(len(text) for text in texts)[0] >= 5, "one time at most is left out"


@pytest.mark.parametrize(
    ("begin_s", "end_s", "text"),
    [
        (0, 0.5, "0 ns to 500 ms"),
        (2.47, 2.49, "2.47 s to 2.49 s"),
        (2.46, 2.54, "2.46 s to 2.54 s"),
        (2.4985, 2.5139, "2.498 s to 2.514 s"),
        (150, 150.2, "2 min 30.0 s to 2 min 30.2 s"),
        (3600, 3615, "1 h 0 min 0 s to 1 h 0 min 15 s"),
        (2, 3.5, "2.0 s to 3.5 s"),
        (7, 7, "7.0 s to 7.0 s"),
    ],
)
def test_the_ends_of_a_short_time_are_told_apart(begin_s: float, end_s: float, text: str) -> None:
    assert figures.span(begin_s * 1e9, end_s * 1e9) == text


# on the screen


@BOTH_SIZES
def test_who_was_waited_for_in_the_cell_under_the_cursor(size: tuple[int, int]) -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        shown = (
            "longest wait: 200 ms for rank 2, all_reduce 0.1 at train.py:42", "Time of the ranks",
            "others wait for it", "◆ rank 0  0 ns to", "100% waits",
        )  # fmt: skip
        await until(lambda: all(text in on_screen(app) for text in shown), pilot)
        assert "t map" in on_screen(app).splitlines()[-1]
        await pilot.press("down", "down")
        delay = "longest delay: others waited 200 ms for it, all_reduce 0.1 at train.py:42"
        await until(lambda: "◆ rank 2" in on_screen(app) and delay in on_screen(app), pilot)
        assert "awaited 100% of it" in on_screen(app)

    play(part, late_job(), size)


@BOTH_SIZES
def test_all_of_forty_ranks_are_on_the_map(size: tuple[int, int]) -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        view = app.map.view
        assert view is not None and view.per_row > 1 and sum(len(view.ranks_in(row)) for row in range(view.rows)) == 40
        assert f"the largest of {view.per_row} ranks per row" in on_screen(app)
        lines = [line.strip() for line in on_screen(app).splitlines()]
        assert all(any(line.startswith(row_title(view, row)) for line in lines) for row in range(view.rows))
        await pilot.press("right_square_bracket")
        await until(lambda: "◆ rank 1 " in on_screen(app), pilot)

    play(part, late_job(40), size)


@BOTH_SIZES
def test_who_never_came_and_who_waits_for_it(size: tuple[int, int]) -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await until(lambda: "in all_reduce 0.2 at train.py:42; rank 2 never joined it" in on_screen(app), pilot)
        await pilot.press("down", "down")
        await until(
            lambda: "never joined all_reduce 0.2 at train.py:42; others wait 1 min 0 s for it" in on_screen(app), pilot
        )

    play(part, hung_job(), size)


def test_enter_opens_the_rank_at_the_wait_under_the_cursor() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        app.part = PARTS - 20
        await pilot.press("down", "right")
        await until(lambda: "for rank 3, all_reduce 0.4" in on_screen(app), pilot)
        await pilot.press("enter")

    assert play(part, late_job()).return_value == OpenRank(1, False, Moment(0, 4))


def test_the_table_is_back_with_the_rank_of_the_map() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("down", "t")
        await until(lambda: "rank 1 waited for" in on_screen(app), pilot)
        assert app.table.has_focus and app.rows[app.table.cursor_row].rank == 1
        await pilot.press("h", "l", "right_square_bracket")  # not heard here
        assert app.table.has_focus and app.rank == 1

    play(part, late_job())


def test_findings_and_the_order_move_the_map() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("s", "s")  # awaited most first
        await until(lambda: app.map.view is not None and app.map.view.ranks[0].rank in (2, 3), pilot)
        await pilot.press("n")
        await until(lambda: app.rank == app.job.diagnosis.verdicts[app.finding].ranks[0], pilot)
        assert f"◆ rank {app.rank}" in on_screen(app)

    play(part, hung_job_with_delays())


def hung_job_with_delays() -> RunOverview:
    job = Job(4)
    job.call(late_ns={2: LATE_NS})
    job.call(late_ns={3: LATE_NS})
    job.raises(3)
    job.call(without={3}, done=False)
    return overview(job, job.now_ns + 1000 * MILLISECOND_NS)


def test_a_click_chooses_a_cell_and_two_open_its_rank() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        assert app.map.view is not None
        at = 1 + app.map.view.height  # below the ruler and the first rank; beside the border
        await pilot.click(app.map, offset=(40, 1 + at))
        await until(lambda: app.rank == 1, pilot)
        assert app.part > 0
        await pilot.click(app.map, offset=(40, 1 + at), times=2)

    chosen = play(part, late_job()).return_value
    assert chosen is not None and (chosen.rank, chosen.runs) == (1, False)


def test_of_a_rank_that_has_ended_nothing_is_said() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        app.part = PARTS - 1
        await pilot.press("down")
        await until(lambda: "· nothing recorded" in on_screen(app), pilot)
        assert "between them ·" not in on_screen(app) and "% between them" not in on_screen(app)

    play(part, ended_job())


def test_what_is_too_long_for_the_line_is_not_wrapped() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        app.part = PARTS // 2 - 2
        await pilot.press("down", "down")
        await until(lambda: "◆ rank 2" in on_screen(app), pilot)
        shares = on_screen(app).splitlines()[-3].rstrip().split(" · ")[1:]
        assert shares and all("% " in share and "…" not in share for share in shares), "half a number is another one"
        assert on_screen(app).splitlines()[-2].startswith(" longest delay: others waited 200 ms")

    play(part, late_job(), (60, 24))


def test_findings_leave_room_for_a_row_of_each_rank() -> None:
    shown = late_job()
    lines = tuple(f"line {number}" for number in range(30))
    long: Any = SimpleNamespace(
        certainty=Certainty.CERTAIN, text="it failed", lines=lines, folded_lines=lines, ranks=(0,), moment=None
    )
    shown = replace(shown, diagnosis=replace(shown.diagnosis, verdicts=(long,)))

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        assert app.map.view is not None and (app.map.view.per_row, app.map.view.height) == (1, 1)
        assert "line 5" in on_screen(app)

    play(part, shown)


def test_waits_that_are_not_known_are_said_to_be_unknown() -> None:
    job = Job(2)
    job.call(late_ns={1: LATE_NS})
    put_on_device(job)

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await until(lambda: "waits are unknown: on a device, asynchronous, or not ended" in on_screen(app), pilot)

    play(part, overview(job))


def test_a_run_without_a_rank_has_an_empty_map() -> None:
    async def run() -> None:
        shown = overview(Job(0))
        app = JobApp(shown, lambda: shown)
        async with running(app, (80, 24)) as pilot:
            await pilot.press("t", "down", "g")
            await until(lambda: app.map.display, pilot)
            assert app.map.view is None

    asyncio.run(run())


def test_the_map_grows_with_the_terminal() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.resize_terminal(160, 45)
        await until(lambda: app.map.view is not None and app.map.view.cells > 120, pilot)

    play(part, late_job())


def test_after_a_rank_that_was_opened_the_map_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    screens: list[JobApp] = []

    async def opens(app: JobApp) -> None:
        async with running(app, (80, 24)) as pilot:
            await pilot.press("t")
            await until(lambda: "◆ rank 0  0 ns" in on_screen(app), pilot)
            await pilot.press("down", "enter")

    def shown(app: JobApp) -> OpenRank | None:
        screens.append(app)
        if len(screens) > 1:
            return None
        asyncio.run(opens(app))
        return app.return_value

    monkeypatch.setenv("TEXTUAL_DRIVER", WEB_DRIVER)
    monkeypatch.setattr(JobApp, "run", shown)
    assert recorded_job(late_job, lambda _rank, _runs, _at: None) == 0

    async def run() -> None:
        async with running(screens[1], (80, 24)) as pilot:
            await until(lambda: "◆ rank 1  0 ns" in on_screen(screens[1]), pilot)
            assert screens[1].map.has_focus and not screens[1].table.display

    asyncio.run(run())


def test_the_longer_of_a_wait_and_a_delay_is_told_first() -> None:
    job = Job(2)
    job.call(late_ns={0: LATE_NS})
    job.call(late_ns={1: 2 * LATE_NS})
    shown = overview(job)
    texts = [time_words.of_cell(row, slice(0, PARTS), shown, 200, "red").plain.splitlines()[1] for row in shown.ranks]
    assert texts[0].startswith(" longest wait: 400 ms for rank 1") and "longest delay: others waited 200 ms" in texts[0]
    assert texts[1].startswith(" longest delay: others waited 400 ms") and "longest wait: 200 ms" in texts[1]


def test_a_wait_of_which_nobody_knows_the_end_is_told_without_a_length() -> None:
    job = Job(2)
    job.call()
    job.call(only={0}, done=False)
    shown = overview(job)
    last = slice(PARTS - 1, PARTS)
    texts = [time_words.of_cell(row, last, shown, 200, "red").plain for row in shown.ranks]
    assert "100% waits" in texts[0] and "between" not in texts[0] and "awaited 100% of it" in texts[1]
    assert "waits (how long is unknown) in all_reduce 0.2 at train.py:42; rank 1 never joined it" in texts[0]
    assert "never joined all_reduce 0.2 at train.py:42; others wait (how long is unknown) for it" in texts[1]


def test_it_says_when_the_time_does_not_begin_with_the_job() -> None:
    shown = replace(late_job(), begins_later=True)

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await until(lambda: "Time of the ranks, newest part of the job" in on_screen(app), pilot)
        assert "newest 805 ms" in on_screen(app)

    play(part, shown, (120, 36))


def test_the_cursor_stays_at_its_time_while_the_job_goes_on() -> None:
    before = late_job()
    after = replace(before, begun_ns=before.begun_ns + before.lasted_ns // 4, lasted_ns=2 * before.lasted_ns)

    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        app.part = PARTS // 2
        for shown, at in ((after, PARTS // 8), (before, PARTS // 2), (after, PARTS // 8)):
            app._take(shown)
            assert app.part == at
        app.part = 0
        app._take(before)
        assert app.part == PARTS // 4
        app.part = 0
        app._take(after)
        assert app.part == 0, "its time is no longer there"

    play(part, before)


def test_a_finding_that_is_chosen_opens_its_rank_where_it_is() -> None:
    shown = hung_job_with_delays()
    moments = {verdict.ranks[0]: verdict.moment for verdict in shown.diagnosis.verdicts if verdict.moment is not None}

    async def chosen(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("n")
        while app.job.diagnosis.verdicts[app.finding].moment is None:
            await pilot.press("n")
        app.part = 0  # where it waits in another collective
        await pilot.press("enter")

    returned = play(chosen, shown).return_value
    assert returned is not None and returned.at == moments[returned.rank]

    async def moved(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await pilot.press("n")
        await until(lambda: f"opens ranks at {app.wanted}" in on_screen(app), pilot)
        app.part = 0
        await pilot.press("up")
        await until(lambda: "opens ranks at" not in on_screen(app), pilot)
        await pilot.press("enter")

    assert play(moved, shown, (120, 36)).return_value == OpenRank(2, False, Moment(0, 1))


def test_the_wait_below_the_map_is_opened_once_the_map_is_shown() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        await until(lambda: "opens ranks at" not in on_screen(app), pilot)
        await pilot.press("enter")

    shown = late_job()
    app = JobApp(shown, lambda: shown, at=0, moment=Moment(0, 3))
    assert play(part, shown, app=app).return_value == OpenRank(0, False, Moment(0, 1))


def test_a_key_on_the_map_does_not_fold_all_ranks_again() -> None:
    async def part(app: JobApp, pilot: Pilot[OpenRank | None]) -> None:
        view = app.map.view
        await pilot.press("down", "right")
        await until(lambda: "◆ rank 1" in on_screen(app), pilot)
        assert app.map.view is view and app.map.place == TimePlace(1, app.part) and app.part > 0

    play(part, late_job())
