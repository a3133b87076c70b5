"""What the screens of a recorded job, of an emulated one and of a sweep have in common: ctrl+c and the first line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from played import until
from prismdbg_tui.compared.app import SweepApp
from prismdbg_tui.overview.app import OverviewApp
from prismdbg_tui.overview.keys import LINE_ACTIONS
from prismdbg_tui.overview.rank_screen import RankScreen
from prismdbg_tui.recorded_job.app import JobApp
from prismdbg_tui.screens.action_app import ActionApp
from shown import running, told
from sweeps import make_sweep
from test_overview import job as emulated_job
from test_recorded_job import job as recorded_job
from textual.pilot import Pilot
from textual.widgets import OptionList, Static

from prismdbg.sweep.stored import read_sweep

NAME = "a-run-of-the-large-model"
Makes = Callable[[Path, Mapping[str, str]], ActionApp[Any]]


def of_recorded_job(_: Path, keys: Mapping[str, str]) -> JobApp:
    shown = replace(recorded_job(), path=Path(NAME))
    return JobApp(shown, lambda: shown, keys=keys)


def of_emulated_job(_: Path, keys: Mapping[str, str]) -> OverviewApp:
    return OverviewApp(replace(emulated_job(), name=NAME), keys=keys, at=0)


def of_sweep(folder: Path, keys: Mapping[str, str]) -> SweepApp:
    sweep = make_sweep(folder / NAME)
    return SweepApp(lambda: read_sweep(sweep), keys=keys)


every_screen = pytest.mark.parametrize(
    "makes", [of_recorded_job, of_emulated_job, of_sweep], ids=["recorded", "emulated", "sweep"]
)


def play(app: ActionApp[Any], width: int, part: Callable[[Pilot[Any]], Any]) -> None:
    async def run() -> None:
        async with running(app, (width, 24)) as pilot:
            await pilot.pause()
            await part(pilot)

    asyncio.run(run())


async def chosen(pilot: Pilot[Any], typed: str) -> str:
    """The first line of the palette for what is typed, which is carried out."""
    await pilot.press("ctrl+p", *({" ": "space"}.get(character, character) for character in typed))
    await until(lambda: typed in first_hit(pilot), pilot)
    line = first_hit(pilot)
    await pilot.press("enter")
    return line


def first_hit(pilot: Pilot[Any]) -> str:
    hits = pilot.app.screen.query(OptionList).first()
    return str(hits.get_option_at_index(0).prompt).casefold() if hits.option_count else ""


def line_of(head: Static) -> str:
    return head.render_line(0).text.rstrip()


@every_screen
def test_ctrl_c_says_which_key_quits_and_leaves_the_screen_as_it_is(makes: Makes, tmp_path: Path) -> None:
    app = makes(tmp_path, {"leave": "f9"})

    async def part(pilot: Pilot[Any]) -> None:
        await pilot.press("ctrl+c")
        await until(lambda: told(app), pilot)
        assert told(app) == ["f9 quits"] and app.return_code is None
        await pilot.press("f9")
        await until(lambda: app.return_code == 0, pilot)

    play(app, 120, part)


@every_screen
def test_the_palette_lists_the_actions_of_the_screen_and_saves_a_picture_of_it(
    makes: Makes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = makes(tmp_path, {})
    monkeypatch.chdir(tmp_path)

    async def part(pilot: Pilot[Any]) -> None:
        before = app.theme
        await chosen(pilot, "next theme")
        await until(lambda: app.theme != before, pilot)
        await chosen(pilot, "screenshot")
        await until(lambda: told(app), pilot)
        (saved,) = tmp_path.glob("prismdbg-*.svg")
        assert str(saved) in told(app)[0] and "prismdbg" in saved.read_text()

    play(app, 120, part)


def test_the_palette_of_a_simulated_rank_lists_what_that_screen_does() -> None:
    """It listed what the map below does, and did it there."""
    app = OverviewApp(emulated_job(), at=9)

    async def part(pilot: Pilot[Any]) -> None:
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, RankScreen), pilot)
        screen = app.screen
        assert isinstance(screen, RankScreen)
        assert "last: " in await chosen(pilot, next(each.title for each in LINE_ACTIONS if each.name == "last"))
        await until(lambda: screen.cursor == len(screen.recording) - 1, pilot)
        assert app.screen is screen

    play(app, 120, part)


def test_the_palette_says_what_is_only_on_the_map(tmp_path: Path) -> None:
    app = of_recorded_job(tmp_path, {})

    async def part(pilot: Pilot[Any]) -> None:
        assert "only on the map: t shows it" in await chosen(pilot, "an earlier cell")
        await until(lambda: told(app) == ["only on the map: t shows it"], pilot)

    play(app, 120, part)


@every_screen
def test_a_first_line_that_is_too_long_loses_whole_parts_then_ends_in_an_ellipsis(makes: Makes, tmp_path: Path) -> None:
    app = makes(tmp_path, {})

    async def part(pilot: Pilot[Any]) -> None:
        whole = line_of(app.head)
        assert NAME in whole and " · " in whole and "…" not in whole
        parts = whole.split(" · ")
        await pilot.resize_terminal(len(whole), 24)
        await until(lambda: line_of(app.head) == whole, pilot)
        await pilot.resize_terminal(len(whole) - 1, 24)
        await until(lambda: line_of(app.head) != whole, pilot)
        shorter = line_of(app.head).split(" · ")
        assert 0 < len(shorter) < len(parts) and set(shorter) < set(parts), "none of them is cut"
        await pilot.resize_terminal(40, 24)
        await until(lambda: line_of(app.head).endswith("…") and len(line_of(app.head)) == 40, pilot)
        assert NAME.startswith(line_of(app.head).split()[-1].removesuffix("…"))

    play(app, 200, part)


def test_the_first_line_of_a_simulated_rank_ends_in_an_ellipsis() -> None:
    app = OverviewApp(emulated_job(), at=9)

    async def part(pilot: Pilot[Any]) -> None:
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, RankScreen), pilot)
        head = app.screen.query_one(".head", Static)
        await until(lambda: line_of(head).startswith(" ◣ prismdbg  simulated   rank 9"), pilot)
        assert line_of(head).endswith("…")
        await pilot.press("ctrl+c")
        await until(lambda: told(app) == ["q quits"], pilot)
        assert isinstance(app.screen, RankScreen)

    play(app, 40, part)
