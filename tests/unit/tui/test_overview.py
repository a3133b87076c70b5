"""All ranks on one screen, by its keys and what it ends with; what it looks like is in `test_pictures`."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from played import screen, small_capsule, until
from prismdbg_tui import start
from prismdbg_tui.overview import job as job_module
from prismdbg_tui.overview.app import Drop, OverviewApp
from prismdbg_tui.overview.folding import Fold
from prismdbg_tui.overview.heat_map import HeatMap
from prismdbg_tui.overview.help_sheet import OverviewHelp
from prismdbg_tui.overview.job import OverviewJob
from prismdbg_tui.overview.keys import LINE_ACTIONS, OVERVIEW_ACTIONS
from prismdbg_tui.overview.plain_ranks import write_ranks
from prismdbg_tui.overview.rank_screen import RankScreen
from prismdbg_tui.overview.simulated import SimulatedRecording
from prismdbg_tui.overview.words import of_cell, of_iteration
from prismdbg_tui.session.app import PrismApp
from rich.console import Console, RenderableType
from shown import on_screen, running, told
from textual.pilot import Pilot

from prismdbg.job_graph.job_view import ASSUMED_CLUSTER
from prismdbg.render.fitting import parts
from prismdbg.simulate.cluster.cluster import example
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.mesh import Mesh

SLOW = 1641  # of the last stage
Play = Callable[[OverviewApp, Pilot[Drop | None]], Awaitable[None]]


@cache
def job(mesh_text: str = "pp=4,dp=64,tp=8") -> OverviewJob:
    """One rank computes far longer than the others; two really ran, and stand for all."""
    mesh = Mesh.parse(mesh_text)
    slower = np.full(mesh.world, 1_000_000)
    slower[SLOW] = 2_000_000
    graph = gpt_job(mesh, GptShape(layers=8, hidden=1024, microbatches=8), compute_ppm=slower)
    standing = np.where(np.arange(mesh.world) < mesh.world // 2, 0, 1)
    return OverviewJob(
        name="run", timeline=simulate(graph, example()), ran=frozenset({0, 1}), stands_for=standing, cluster="assumed"
    )


def play(
    part: Play, size: tuple[int, int] = (160, 45), *, at: int | None = 0, mesh: str = "pp=4,dp=64,tp=8"
) -> OverviewApp:
    app = OverviewApp(job(mesh), at=at)

    async def run() -> None:
        async with running(app, size) as pilot:
            await pilot.pause()
            await part(app, pilot)

    asyncio.run(run())
    return app


def test_it_opens_where_most_is_waited() -> None:
    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        assert app.map_view.rank == int(app.map_view.metric.values.argmax())
        await until(lambda: app.path is not None, pilot)

    play(part, at=None)


def test_the_cursor_goes_by_cells_and_by_ranks_inside() -> None:
    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        look = app.map_view
        frame = look.folded.frame
        assert look.grid.shape == (4, 512, 1) and frame.columns_a_cell == 2 and frame.wraps > 1
        await pilot.press("right", "right")
        assert look.cell == (0, 2) and look.rank in look.ranks_here
        await pilot.press("left_square_bracket", "left_square_bracket")
        assert look.rank == 4
        await pilot.press("right_square_bracket", "right_square_bracket")
        assert look.rank == 5
        await pilot.press("down")
        assert look.cell == (0, 2 + frame.across)
        await pilot.press(*["down"] * (frame.wraps - 1))
        assert look.cell == (1, 2)
        await pilot.press(*["up"] * 9, "left", "left", "left")
        assert look.cell == (0, 0)

    play(part, (80, 24))


def test_the_slow_rank_is_found_by_its_number() -> None:
    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        await pilot.press("4", "g")
        assert (app.map_view.metric.name, app.map_view.rank) == ("computed", SLOW)
        await pilot.press("full_stop")
        assert app.map_view.place_by_value() == 2
        await pilot.press("comma")
        assert app.map_view.rank == SLOW
        await pilot.press("2", "g")
        assert app.map_view.metric.name == "late"

    play(part)


def test_a_rank_is_gone_to_by_number_and_by_coordinates() -> None:
    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        await pilot.press("slash", *"617", "enter")
        assert app.map_view.rank == 617
        await pilot.press("slash", *"pp=3", "space", *"tp=7", "enter")
        assert app.job.mesh.coordinates(app.map_view.rank) == {"pp": 3, "dp": 13, "tp": 7}
        await pilot.press("slash", *"pp=9", "enter")
        await until(lambda: any("outside the mesh" in note for note in told(app)), pilot)
        await pilot.press("slash", *"5", "escape")
        assert app.job.mesh.coordinates(app.map_view.rank)["pp"] == 3 and app.focused is app.map

    play(part)


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 45)])
def test_what_is_said_of_a_cell_is_of_the_cells_that_are_seen(size: tuple[int, int]) -> None:
    """While the prompt takes a line, the map has other cells."""

    def is_said(app: OverviewApp) -> bool:
        ranks, screen = len(app.map_view.ranks_here), on_screen(app)
        return f"of {ranks} ranks per cell" in screen and f"its cell: {ranks} ranks" in screen

    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        await until(lambda: is_said(app), pilot)
        await pilot.press("slash", *"617")
        await until(lambda: is_said(app), pilot)
        await pilot.press("enter")
        await until(lambda: is_said(app), pilot)

    app = play(part, size, mesh="pp=4,dp=128,tp=8")
    assert app.map_view.rank == 617


def test_axes_zoom_fold_and_scale() -> None:
    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        look = app.map_view
        await pilot.press("r")
        assert (look.grid.rows, look.grid.columns) == (("dp",), ("pp", "tp"))
        await pilot.press("c")
        assert (look.grid.columns, look.grid.inside) == (("pp",), ("tp",))
        assert len(look.ranks_here) % 8 == 0
        await pilot.press("s")
        assert (look.grid.rows, look.grid.columns) == (("pp",), ("dp",))
        for name in ("mean", "least", "most"):
            await pilot.press("f")
            assert look.fold is Fold(name)
        await pilot.press("e")
        assert look.scale.even
        await pilot.press("c", "c")
        assert look.grid.columns == ("dp", "tp")
        await pilot.press("plus")
        assert look.folded.frame.columns_a_cell == 1 and look.part.columns == 256
        await pilot.press("plus")
        await until(lambda: any("one row and one column" in note for note in told(app)), pilot)
        await pilot.press("minus", "0")
        assert look.part.columns == 512

    play(part, (80, 24))


@pytest.mark.parametrize("size", [(60, 24), (72, 24), (80, 24), (120, 36)])
def test_what_is_said_of_a_cell_is_not_cut_within_a_value(size: tuple[int, int]) -> None:
    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        await pilot.press("minus", "0")
        whole = of_cell(app.map_view, 1000).plain
        assert "mean" in whole and any(said(app, text) for text in parts(whole))

    def said(app: OverviewApp, text: str) -> bool:
        return any(line.strip() == text for line in on_screen(app).splitlines())

    play(part, size)


@pytest.mark.parametrize("size", [(80, 24), (160, 45), (250, 70), (40, 12)])
def test_at_every_size_the_map_and_the_iteration_are_reached(size: tuple[int, int]) -> None:
    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        assert app.map.display and app.map.size.height > 3
        await pilot.press("tab")
        assert app.query_one("#iteration").display and app.query_one("#iteration").size.height > 2
        await pilot.press("escape")
        assert app.map.display and app.focused is app.map
        await pilot.resize_terminal(100, 30)
        await pilot.pause()
        assert app.map.size.width <= 100

    play(part, size)


def test_the_iteration_breaks_its_lines_where_they_end() -> None:
    """What is not reliable was cut at 80 columns."""
    told = console_text(of_iteration(job(), None, 74, "blue"))
    lines = told.splitlines()
    assert max(map(len, lines[lines.index("Fidelity") :])) <= 74
    assert " ".join(job().timeline.fidelity.doubts[-1].split()) in " ".join(told.split())


def test_an_assumed_cluster_is_said_once() -> None:
    lines = console_text(of_iteration(replace(job(), cluster=ASSUMED_CLUSTER), None, 200, "blue")).splitlines()
    assert lines[-1].strip() == ASSUMED_CLUSTER


def test_an_axis_that_is_not_there_is_a_dash() -> None:
    grid = SimpleNamespace(rows=(), columns=(), inside=(), shape=(1, 1, 1))
    shown = HeatMap(cast(Any, SimpleNamespace(grid=grid, part=SimpleNamespace(rows=1, columns=1))))
    assert str(shown._axes()) == "rows -, columns -"


def console_text(shown: RenderableType) -> str:
    file = io.StringIO()
    Console(file=file, width=200).print(shown)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def test_into_a_rank_that_ran_and_one_that_did_not() -> None:
    async def enters(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        await pilot.press("enter")

    async def debugs(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        await pilot.press("slash", *"700", "enter", "D")
        await until(lambda: any("represented by rank 0" in note for note in told(app)), pilot)
        await pilot.press("slash", "1", "enter", "D")

    assert play(enters).return_value == Drop(0, runs=False)
    assert play(debugs).return_value == Drop(1, runs=True)


def test_in_a_browser_a_rank_has_a_page_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OverviewApp, "is_web", True)
    opened: list[tuple[str, bool]] = []

    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        monkeypatch.setattr(app, "open_url", lambda url, new_tab: opened.append((url, new_tab)))
        await pilot.press("enter", "slash", "1", "enter", "D")

    play(part)
    assert opened == [("/open/0", False), ("/debug/1", False)]


def test_a_simulated_rank_has_a_time_line_and_leads_back() -> None:
    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        await pilot.press("slash", *"617", "enter", "enter")
        await until(lambda: isinstance(app.screen, RankScreen), pilot)
        screen = app.screen
        assert isinstance(screen, RankScreen)
        recording = screen.recording
        assert screen.lanes.lanes == len({recording.group(row).title for row in range(len(recording))})
        await pilot.press("G", "left", "g", "right")
        assert screen.cursor == 1
        await pilot.press("full_stop")
        await pilot.pause()
        assert recording.waited_for_others_ns[screen.cursor] > 0
        await pilot.press("plus", "question_mark")
        assert isinstance(app.screen, OverviewHelp)
        await pilot.press("escape", "escape")
        assert len(app.screen_stack) == 1 and app.map_view.rank == 617

    play(part)


@pytest.mark.parametrize("key", ["enter", "t", "D", "m", "r", "slash", "T", "tab", "shift+tab"])
def test_on_the_time_line_of_a_rank_no_key_acts_on_the_map_below_it(key: str) -> None:
    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        await pilot.press("t")
        await until(lambda: isinstance(app.screen, RankScreen), pilot)
        done: list[str] = []
        app.act = done.append  # type: ignore[method-assign, assignment]
        app._do_iteration = lambda: done.append("iteration")  # type: ignore[method-assign]
        await pilot.press(key, "question_mark", key)
        assert isinstance(app.screen, OverviewHelp) and not done
        await pilot.press("escape", "escape")
        assert len(app.screen_stack) == 1
        await pilot.press("m", "tab")
        assert done == ["next_metric", "iteration"]

    play(part)


def test_a_rank_that_is_opened_twice_is_above_once_and_the_last_one_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def slow(*given: Any, **named: Any) -> Any:
        both.wait(20)
        return simulate(*given, **named)

    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        await until(lambda: app.path is not None, pilot)
        monkeypatch.setattr("prismdbg_tui.overview.app.simulate", slow)
        app.map_view.go_to(5)
        app.act("simulated")
        await until(lambda: both.n_waiting, pilot)
        app.map_view.go_to(6)
        app.act("simulated")
        await until(lambda: isinstance(app.screen, RankScreen) and app.is_settled, pilot)
        assert isinstance(app.screen, RankScreen)
        assert app.screen._title.startswith(app.job.mesh.say(6)) and len(app.screen_stack) == 2

    play(part)


def test_what_a_rank_is_shown_to_do_is_what_was_simulated() -> None:
    timeline = simulate(job().timeline.graph, example(), of_rank=SLOW)
    recording, of = SimulatedRecording(timeline, SLOW), timeline.of(SLOW)
    taken = of.end_ns - of.start_ns
    assert int((recording.columns.ended_ns - recording.columns.begun_ns).sum()) == int(
        taken[of.entries.kind <= 3].sum()
    )
    computed = [row for row in range(len(recording)) if recording.group(row).title == "computes"]
    assert sum(recording.took_ns(row) or 0 for row in computed) == int(timeline.computed_ns[SLOW])
    assert not any(recording.waited_for_others_ns[row] for row in computed)


def test_help_says_every_key_and_no_key_does_two_things() -> None:
    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        await pilot.press("question_mark")
        assert isinstance(app.screen, OverviewHelp)
        cells = [str(cell) for column in app.screen.of_keys().columns for cell in column.cells]
        assert all(action.title in cells for action in OVERVIEW_ACTIONS)
        await pilot.press("escape", "q")

    play(part)
    for actions in (OVERVIEW_ACTIONS, LINE_ACTIONS):
        keys = [key for action in actions for key in action.keys.split(",")]
        assert len(keys) == len(set(keys))


def test_every_action_does_something() -> None:
    app = OverviewApp(job())
    moves = {action.name for action in OVERVIEW_ACTIONS if not hasattr(app, f"_do_{action.name}")}
    assert moves <= set(app.moves())
    assert all(hasattr(RankScreen, f"_do_{action.name}") for action in LINE_ACTIONS)


def test_the_mouse_chooses_and_the_wheel_zooms() -> None:
    async def part(app: OverviewApp, pilot: Pilot[Drop | None]) -> None:
        await until(lambda: app.path is not None, pilot)  # all that can still move the map has come
        line, character = app.map_view.folded.frame.corner((2, 5))
        await pilot.click("#map", offset=(character + app.map.titles + 1, line + 2))
        await until(lambda: app.map_view.cell == (2, 5), pilot)

    play(part)


def test_without_a_terminal_it_is_a_table() -> None:
    output = io.StringIO()
    write_ranks(job(), output)
    lines = output.getvalue().splitlines()
    header, row = lines[0].split("\t"), lines[1 + SLOW].split("\t")
    assert len(lines) == 1 + 2048 and header[:6] == ["rank", "pp", "dp", "tp", "class", "ran"]
    assert row[:4] == ["1641", "3", "13", "1"] and row[5] == "represented by rank 1"
    assert int(row[header.index("computed ns")]) == max(int(line.split("\t")[header.index("computed ns")])
                                                        for line in lines[1:])  # fmt: skip


def test_after_a_rank_one_is_back_where_one_was(monkeypatch: pytest.MonkeyPatch) -> None:
    drops = iter([Drop(1, runs=False), Drop(0, runs=True), None])
    opened_at: list[int] = []
    gone_into: list[tuple[int, bool]] = []

    def run(app: OverviewApp) -> Drop | None:
        opened_at.append(app.map_view.rank)
        return next(drops)

    monkeypatch.setattr(OverviewApp, "run", run)
    monkeypatch.setattr(start, "on_terminal", lambda: True)
    monkeypatch.setattr(job_module, "overview_job", lambda view: view)
    code = start.overview(cast(Any, job()), lambda rank, runs: gone_into.append((rank, runs)))
    assert code == 0 and opened_at[1:] == [1, 0]
    assert gone_into == [(1, False), (0, True)]


def test_escape_leads_from_a_rank_back_to_all(tmp_path: Path) -> None:
    app = PrismApp(small_capsule(tmp_path), "capsule", above=True)

    async def part() -> None:
        async with screen(app) as pilot:
            await pilot.press("colon", "x", "escape")
            assert app.return_value is None and app.panes.collectives.has_focus
            await pilot.press("escape")

    asyncio.run(part())
    assert app.return_value == 0
