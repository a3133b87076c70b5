"""Names and texts that would steer a terminal: nothing of them is written, whichever widget shows them."""

from __future__ import annotations

import asyncio
from xml.etree import ElementTree

import pytest
from prismdbg_tui.drawing.printable import printable
from prismdbg_tui.screens.pictured_app import PicturedApp
from rich.cells import cell_len
from rich.text import Text
from shown import running
from textual.app import ComposeResult
from textual.widgets import Static

HOSTILE = "D\x1b]0;PWN\x07\x9b31m\u202eend\x00\x7f\u200bE"


class Hostile(PicturedApp[None]):
    def compose(self) -> ComposeResult:
        shown = Static(Text(HOSTILE))
        shown.styles.border = ("round", "white")
        shown.border_title = shown.border_subtitle = HOSTILE
        yield shown


def test_no_widget_and_no_picture_writes_what_steers_a_terminal() -> None:
    app = Hostile()

    async def part() -> str:
        async with running(app, (60, 8)) as pilot:
            await pilot.pause()
            lines = [strip.text for strip in app.screen._compositor.render_strips()]
            assert all(line.isprintable() for line in lines), lines
            assert sum("PWN" in line and "end" in line for line in lines) == 3, lines
            assert {cell_len(line) for line in lines} == {60}
            return app.export_screenshot()

    picture = asyncio.run(part())
    texts = "".join(ElementTree.fromstring(picture).itertext())
    assert "PWN" in texts and not any(c in texts for c in HOSTILE if not c.isprintable())


@pytest.mark.parametrize("text", ["plain", "ä → 猫 🙂 e\u0301", HOSTILE, "\ue0b0 soft\u00adhyphen"])
def test_each_character_keeps_its_width(text: str) -> None:
    assert printable(text).isprintable() and cell_len(printable(text)) == cell_len(text)
    if text.isprintable():
        assert printable(text) == text
