"""What somebody sees of a screen: its text, and what it told in passing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary
from xml.etree import ElementTree

import pytest
from prismdbg_tui.drawing.picture import WIDTH
from textual._compositor import Compositor
from textual._context import visible_screen_stack
from textual.app import App
from textual.css.stylesheet import Stylesheet
from textual.message import Message
from textual.notifications import Notification, Notify
from textual.pilot import Pilot
from textual.screen import Screen

SVG = "{http://www.w3.org/2000/svg}"
_TOLD: WeakKeyDictionary[App[Any], dict[str, Notification]] = WeakKeyDictionary()


@asynccontextmanager
async def running(app: App[Any], size: tuple[int, int]) -> AsyncIterator[Pilot[Any]]:
    """Without a terminal; `told` knows what it tells."""
    notes = _TOLD[app] = {}

    def hear(message: Message) -> None:
        if isinstance(message, Notify):
            notes[message.notification.identity] = message.notification

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", _parsed_once)
        patch.setattr(Compositor, "render_update", _drawn)
        async with app.run_test(size=size, message_hook=hear) as pilot:
            yield pilot


_PARSE = Stylesheet._parse_rules


def _parsed_once(sheet: Stylesheet, css: str, **source: Any) -> Any:
    """Each application would parse the same style sheets again."""
    return _rules(frozenset(sheet._variables.items()), css, tuple(source.items()))


@cache
def _rules(variables: frozenset[tuple[str, str]], css: str, source: tuple[tuple[str, Any], ...]) -> Any:
    return _PARSE(Stylesheet(variables=dict(variables)), css, **dict(source))


_RENDER = Compositor.render_update


def _drawn(
    screen: Compositor, full: bool = False, screen_stack: list[Screen[Any]] | None = None, simplify: bool = False
) -> Any:
    """No terminal shows this frame: each widget in it draws its lines, as ever, but they are not cut and put together.
    A picture is."""
    if full:
        return _RENDER(screen, full, screen_stack, simplify)
    visible_screen_stack.set(screen_stack or [])
    parts = set(screen._dirty_regions)
    screen._dirty_regions.clear()
    for widget, (region, clip) in screen.visible_widgets.items():
        seen = region.intersection(clip)
        if any(seen.overlaps(part) for part in parts):
            widget.render_lines(seen.translate(-region.offset))
    return None


def told(app: App[Any]) -> list[str]:
    """Its notifications, in their order, of an application that is `running`."""
    return [note.message for note in _TOLD[app].values()]


def raising(error: Exception) -> Callable[..., Any]:
    """A function that fails, whatever it is given."""

    def fails(*_arguments: object) -> Any:
        raise error

    return fails


def on_screen(app: App[Any]) -> str:
    return text_of(app.export_screenshot())


def text_of(svg: str) -> str:
    """The title and the lines of a picture of the screen, by the place of each character, as an XML parser reads it."""
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    lines: dict[float, dict[int, str]] = defaultdict(dict)
    for node in root.iterfind(f"{SVG}g/{SVG}text"):
        for x, character in zip(node.attrib["x"].split(), node.text or "", strict=True):
            lines[float(node.attrib["y"])][round(float(x) / WIDTH)] = character
    shown = ("".join(line.get(x, " ") for x in range(500)).rstrip() for _, line in sorted(lines.items()))
    return "\n".join([root.findtext(f"{SVG}text", ""), *shown])
