"""What has one line of the screen, whatever it says: other words in it move nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from played import has_values, large_job, screen_of_app, small_capsule, until
from prismdbg_tui.overview.app import OverviewApp
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.views import Phase, State
from shown import on_screen, running
from textual.pilot import Pilot
from textual.screen import Screen


@pytest.fixture
def layouts(monkeypatch: pytest.MonkeyPatch) -> list[Screen[Any]]:
    laid_out: list[Screen[Any]] = []
    lay_out = Screen._refresh_layout

    def counted(screen: Screen[Any], *arguments: Any, **options: Any) -> None:
        laid_out.append(screen)
        lay_out(screen, *arguments, **options)

    monkeypatch.setattr(Screen, "_refresh_layout", counted)
    return laid_out


LINES: dict[str, Callable[[PrismApp], object]] = {
    "header": lambda app: app.panes.header.show(State(phase=Phase.RUNNING)),
    "status": lambda app: app.panes.status.confirm("copied"),
    "incident": lambda app: app.panes.incident.again(),
    "keys": lambda app: app.panes.keys.paint(),
    "tabs": lambda app: app.panes.tabs.show("peers"),
}


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["narrow", "ample"])
def test_a_line_of_a_session(tmp_path: Path, layouts: list[Screen[Any]], size: tuple[int, int]) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.is_settled and has_values(app), pilot)
        for name, changes in LINES.items():
            layouts.clear()
            changes(app)
            await pilot.pause()
            assert not layouts, name
        assert "running" in on_screen(app) and "copied" in on_screen(app)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part, size)


def test_the_head_of_all_ranks(layouts: list[Screen[Any]]) -> None:
    app = OverviewApp(large_job(), at=0)

    async def run() -> None:
        async with running(app, (160, 45)) as pilot:
            await until(lambda: app.is_settled and app.path is not None, pilot)
            layouts.clear()
            app.show_head("simulated", "accent", "another name", ())
            await pilot.pause()
            assert not layouts
            assert "another name" in on_screen(app)

    asyncio.run(run())
