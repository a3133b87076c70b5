"""Names and texts that would steer a terminal or the toolkit: nothing of them is written, or read as markup, whichever
widget shows them."""

from __future__ import annotations

import asyncio
from xml.etree import ElementTree

import pytest
from played import until
from prismdbg_tui.drawing.printable import printable
from prismdbg_tui.screens.pictured_app import PicturedApp
from prismdbg_tui.session.views import SourceView
from prismdbg_tui.widgets.memory import Memory
from prismdbg_tui.widgets.pane import Pane
from prismdbg_tui.widgets.source import Source
from prismdbg_tui.widgets.treemap import Treemap
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from shown import on_screen, running
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


MARKUP = ("[/x] end", "[@click=app.bell]z[/]", "[ @click=app.bell]z[/]", "[$error]z", r"\[b]z[/b]")


@pytest.mark.parametrize("text", MARKUP)
def test_what_looks_like_markup_is_told_as_it_is(text: str) -> None:
    """A damaged log ended the screen with a traceback, and a text in it could be clicked and ran an action."""
    app = PicturedApp[None]()

    async def part() -> None:
        async with app.run_test(size=(90, 8), notifications=True) as pilot:
            app.notify(text, title=text)
            await until(lambda: on_screen(app).count(text) == 2, pilot)
            assert "@click" not in str([style.meta for style in _styles(app)])

    asyncio.run(part())


def test_what_is_on_the_screen_is_not_said_once_more() -> None:
    app = PicturedApp[None]()

    async def part() -> None:
        async with app.run_test(size=(90, 20), notifications=True) as pilot:
            app.notify("first")
            await until(lambda: "first" in on_screen(app), pilot)
            app.notify("first")
            app.notify("second")
            await until(lambda: "second" in on_screen(app), pilot)
            assert on_screen(app).count("first") == 1

    asyncio.run(part())


class Framed(PicturedApp[None]):
    CSS = ".pane { border: round white; height: 6; }"

    def compose(self) -> ComposeResult:
        yield Pane("noted", "a pane")
        yield Memory("m")
        yield Source()


@pytest.mark.parametrize("text", MARKUP)
def test_what_looks_like_markup_stands_in_a_frame_as_it_is(text: str) -> None:
    app = Framed()

    async def part() -> None:
        async with running(app, (90, 24)) as pilot:
            app.query_one(Pane).put("", text)
            app.query_one(Memory).on_treemap_chosen(Treemap.Chosen(text))
            app.query_one(Source).show(SourceView(filename="f.py", function=text, line=1, lines=("x",), note=text))
            await pilot.pause()
            shown = on_screen(app)
            assert shown.count(text) == 4, shown
            assert "@click" not in str([style.meta for style in _styles(app)])

    asyncio.run(part())


def _styles(app: PicturedApp[None]) -> list[Style]:
    strips = app.screen._compositor.render_strips()
    return [segment.style for strip in strips for segment in strip if segment.style is not None]
