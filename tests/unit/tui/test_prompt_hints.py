"""What is shown in a line that is typed into, before something is typed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from played import screen, small_capsule, until
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.messages import Purpose
from prismdbg_tui.widgets.prompt import HINTS
from shown import on_screen


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
def test_every_hint_is_shown_whole(tmp_path: Path, size: tuple[int, int]) -> None:
    app = PrismApp(small_capsule(tmp_path), "capsule")

    async def run() -> None:
        async with screen(app, size) as pilot:
            for purpose in Purpose:
                app.panes.prompt.ask(purpose)
                await until(lambda purpose=purpose: f" {purpose} " in on_screen(app), pilot)  # type: ignore[misc]
                assert HINTS[purpose] in on_screen(app), purpose

    asyncio.run(run())
