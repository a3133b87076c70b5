"""The configurations of a sweep on one screen, by its keys and what it ends with."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from played import until
from prismdbg_tui import start
from prismdbg_tui.compared.app import SweepApp
from prismdbg_tui.compared.help_sheet import SweepHelp
from prismdbg_tui.compared.keys import SWEEP_ACTIONS, TABLE
from prismdbg_tui.compared.plain_sweep import write_sweep
from prismdbg_tui.compared.words import TITLES
from prismdbg_tui.compared.words import heading as heading_of_sweep
from prismdbg_tui.overview.job import overview_job
from prismdbg_tui.overview.words import heading
from prismdbg_tui.session.keymap import read_keys
from shown import on_screen, raising, running, told
from sweeps import done, keep, make_sweep
from textual.pilot import Pilot

from prismdbg.cli import main
from prismdbg.errors import CapsuleError
from prismdbg.job_graph.job_view import JobView
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.sweep.marker import is_sweep
from prismdbg.sweep.stored import keep_comparison, read_sweep

Play = Callable[[SweepApp, Pilot[str]], Awaitable[None]]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return make_sweep(tmp_path / "s")


def play(folder: Path, part: Play, size: tuple[int, int] = (120, 36)) -> SweepApp:
    app = SweepApp(lambda: read_sweep(folder))

    async def run() -> None:
        async with running(app, size) as pilot:
            await pilot.pause()
            await part(app, pilot)

    asyncio.run(run())
    return app


def test_what_ran_since_the_last_comparison_counts(sweep: Path) -> None:
    assert is_sweep(sweep) and not is_sweep(sweep / "trials")
    found = read_sweep(sweep)
    assert {each.name: each.middle_ns for each in found.results} == {
        "tp=1": 30_000_000, "tp=2": 20_000_000, "tp=4": 0, "tp=8": 0,
    }  # fmt: skip
    assert found.unfinished == ("tp=16",) and found.cap_bytes == 500 << 20


@pytest.mark.parametrize("name", ["../../other", "..", "", "x" * 256])
def test_a_name_that_no_folder_below_has_is_refused(sweep: Path, name: str) -> None:
    keep_comparison(sweep, [done(name, 1, 1)], 0)
    with pytest.raises(CapsuleError, match="is not the name of a configuration"):
        read_sweep(sweep)


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 60)])
def test_all_configurations_with_time_interval_memory_and_fit(sweep: Path, size: tuple[int, int]) -> None:
    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        text = on_screen(app)
        assert "2 of 5 configurations with a time" in text and "1 without a result" in text
        assert "fastest: tp=1, 30 ms per iteration" in text, "the other one does not fit"
        row = next(line for line in text.splitlines() if "* tp=2" in line)
        assert all(part in row for part in ("20 ms", "19 ms to 21 ms", "900.0 MiB", "no")), row
        assert "failed" in text and "left out" in text

    play(sweep, part, size)


@pytest.mark.parametrize(("cap_bytes", "written"), [(80 * 10**9, "cap 80 GB"), (3 << 29, "cap 1536 MiB")])
def test_the_cap_is_said_as_it_was_given(sweep: Path, cap_bytes: int, written: str) -> None:
    assert written in heading_of_sweep(replace(read_sweep(sweep), cap_bytes=cap_bytes))


def test_a_long_name_leaves_room_for_the_other_columns(sweep: Path) -> None:
    keep(sweep, done(",".join(f"option{number}=value" for number in range(9)), 10, 1))

    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        row = next(line for line in on_screen(app).splitlines() if "* option0" in line)
        assert "9 ms to 11 ms" in row and "yes" in row, row

    play(sweep, part, (80, 24))


def test_enter_opens_the_run_under_the_cursor(sweep: Path) -> None:
    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        assert app.name_at == "tp=2"
        await pilot.press("down", "enter")

    assert play(sweep, part).return_value == "tp=1"


CLUSTER = (Path(__file__).parents[3] / "examples" / "emulation" / "cluster.yaml").read_text()


@pytest.mark.parametrize(
    ("kept", "given", "of_it"),
    [(CLUSTER, "", "s/cluster.yaml"), (CLUSTER, CLUSTER, "given.yaml"), ("", "", "")],
    ids=["its own", "given", "none"],
)
def test_a_run_is_simulated_on_the_cluster_of_its_sweep(
    tmp_path: Path, sweep: Path, monkeypatch: pytest.MonkeyPatch, kept: str, given: str, of_it: str
) -> None:
    """Or on the one that is given; without any the screen says that the figures are assumed."""
    graph_file.save(gpt_job(Mesh.parse("dp=2"), GptShape(layers=2, hidden=64)), run_of(sweep) / graph_file.FILE_NAME)
    for path, text in ((sweep / "cluster.yaml", kept), (tmp_path / "given.yaml", given)):
        if text:
            path.write_text(text)
    chosen = iter(["tp=1", None])
    shown: list[JobView] = []
    monkeypatch.setattr(SweepApp, "run", lambda self: next(chosen))
    monkeypatch.setattr(start, "on_terminal", lambda: True)
    monkeypatch.setattr(start, "overview", lambda view, *_: shown.append(view))
    assert main.run(["open", str(sweep), *(["--cluster", str(tmp_path / "given.yaml")] if given else [])]) == 0
    (view,) = shown
    head = heading(overview_job(view))
    if of_it:
        assert view.cluster_text == str(tmp_path / of_it) and view.cluster.tiers[0].name == "memory"
        assert "cluster assumed" not in head
    else:
        assert "cluster assumed" in head


def run_of(sweep: Path) -> Path:
    run = sweep / "trials" / "tp=1" / "run"
    run.mkdir()
    return run


def test_what_has_no_run_is_not_opened_and_says_why(sweep: Path) -> None:
    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        await pilot.press("down", "down")
        await until(lambda: "failed: rank 0 failed" in on_screen(app), pilot)
        assert "\x1b" not in on_screen(app) and "\x07" not in on_screen(app)
        await pilot.press("enter")
        await until(lambda: any("tp=4 has no complete run" in note for note in told(app)), pilot)

    assert play(sweep, part).return_value is None


def test_the_row_under_the_cursor_says_what_is_not_reliable(sweep: Path) -> None:
    keep(sweep, replace(done("tp=2", 20, 900), doubts=("all values: nothing ran", "times of 3 shapes: not sampled")))

    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        await until(lambda: "not reliable: all values; times of 3 shapes" in on_screen(app), pilot)

    play(sweep, part, (80, 24))


def test_what_has_no_room_under_the_cursor_is_seen_to_be_left_out(sweep: Path) -> None:
    doubts = tuple(f"times of operator {number}: not sampled" for number in range(30))
    keep(sweep, replace(done("tp=2", 20, 900), doubts=doubts))

    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        await until(lambda: "operator 0" in on_screen(app), pilot)
        last = [line for line in on_screen(app).splitlines() if "operator" in line][-1]
        assert "operator 29" not in last and last.rstrip().endswith(" …")

    play(sweep, part, (80, 24))


def test_sorting_keeps_the_configuration_under_the_cursor(sweep: Path) -> None:
    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        orders = []
        for _ in range(3):
            orders.append([each.name for each in app.rows])
            await pilot.press("s")
            await pilot.pause()
            assert app.name_at == "tp=2" and app.rows[app.table.cursor_row].name == "tp=2"
        assert orders == [
            ["tp=2", "tp=1", "tp=4", "tp=8"],
            ["tp=1", "tp=2", "tp=4", "tp=8"],
            ["tp=1", "tp=2", "tp=4", "tp=8"],
        ]

    play(sweep, part)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_the_header_says_the_order_and_nothing_covers_the_panes(sweep: Path, size: tuple[int, int]) -> None:
    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        for order in ("memory", "name"):
            await pilot.press("s")
            await until(lambda order=order: f"sorted by {order}" in str(app.head.content), pilot)  # type: ignore[misc]
            assert f"sorted by {order}" in on_screen(app) and "2 of 5 configurations" in on_screen(app)
        await pilot.press("s")
        await until(lambda: "sorted by" not in str(app.head.content), pilot)
        assert told(app) == []

    play(sweep, part, size)


def test_it_is_read_again_while_the_sweep_runs(sweep: Path) -> None:
    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        (sweep / "trials" / "tp=16" / "result.json").write_text(json.dumps(done("tp=16", 5, 1).to_json()))
        await pilot.press("r")
        await until(lambda: app.table.row_count == 5, pilot)
        assert app.rows[0].name == "tp=16"
        (sweep / "compared.json").write_text("{")
        await pilot.press("r")
        await until(lambda: any("cannot be read again" in note for note in told(app)), pilot)

    play(sweep, part)


def test_of_a_sweep_that_was_removed_the_last_reading_stays_and_it_is_said(sweep: Path) -> None:
    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        shutil.rmtree(sweep)
        await pilot.press("r")
        await until(lambda: any(f"no such folder: {sweep}\ntry:" in note for note in told(app)), pilot)
        assert app.table.row_count == 4

    play(sweep, part)


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "No such file or directory", "/s/trials"), OSError(5, "-", "/s")]
)
def test_why_it_cannot_be_read_again_and_what_to_do(sweep: Path, error: OSError) -> None:
    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        app._read = raising(error)
        await pilot.press("r")
        await until(
            lambda: any(f"read again: {error.filename}" in note and "\ntry: " in note for note in told(app)), pilot
        )

    play(sweep, part)


def test_an_error_that_nobody_has_foreseen_ends_the_screen(sweep: Path) -> None:
    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        app._read = raising(TimeoutError("no answer"))
        await pilot.press("r")
        await until(lambda: not app.is_running, pilot)

    with pytest.raises(TimeoutError, match="no answer"):
        play(sweep, part)


def test_a_sweep_without_results_is_shown_empty(tmp_path: Path) -> None:
    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        assert "no configuration has a time" in on_screen(app)
        await pilot.press("enter", "s", "q")

    assert play(tmp_path, part).return_value is None


def test_the_help_of_a_sweep_names_every_key(sweep: Path) -> None:
    async def part(app: SweepApp, pilot: Pilot[str]) -> None:
        await pilot.press("question_mark")
        await until(lambda: isinstance(app.screen, SweepHelp), pilot)
        assert isinstance(app.screen, SweepHelp)
        cells = [str(cell) for column in app.screen.of_keys().columns for cell in column.cells]
        assert all(action.title in cells for action in SWEEP_ACTIONS)
        await pilot.press("escape")

    play(sweep, part)


def test_the_help_of_a_sweep_names_every_column() -> None:
    sheet = SweepHelp({})
    assert {*TITLES} - {"configuration"} <= {*sheet.meanings}


def test_a_sweep_as_lines_of_text(sweep: Path) -> None:
    out = io.StringIO()
    write_sweep(read_sweep(sweep), out)
    header, *rows = [line.split("\t") for line in out.getvalue().splitlines()]
    assert len(rows) == 4 and {len(row) for row in rows} == {len(header)} and "\x1b" not in out.getvalue()
    found = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert found["tp=2"]["time_ns"] == "20000000" and found["tp=2"]["fits"] == "False"
    assert found["tp=8"]["time_ns"] == "" and found["tp=8"]["why"] == "predicted 40 ms"


def test_keys_of_a_sweep_have_a_table_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text('[sweep]\nnext_order = "o"\n')
    assert read_keys(file, SWEEP_ACTIONS, TABLE) == {"next_order": "o"}
