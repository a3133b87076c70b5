"""The screen as an SVG picture: every cell at its place in any renderer, blocks and frames drawn as shapes.

Textual's own pictures leave the widths of glyphs to the viewer's font.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from xml.sax.saxutils import escape

from rich.color import blend_rgb
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME, TerminalTheme
from textual.app import App

from prismdbg_tui.drawing.colors import color
from prismdbg_tui.drawing.picture_shapes import shape

WIDTH, HEIGHT = 8.4, 18.0  # of a cell
_FONT = "'JetBrains Mono','Fira Code','DejaVu Sans Mono',Menlo,Consolas,monospace"
_FONT_SIZE = 14
_BASELINE = 13.4
_MARGIN, _BAR = 12.0, 32.0
_BUTTONS = ("#ff5f57", "#febc2e", "#28c840")


@dataclass(frozen=True, slots=True)
class Look:
    """Of a cell, resolved."""

    color: str
    ground: str
    bold: bool
    italic: bool
    underline: bool


@dataclass(slots=True)
class _Page:
    grounds: list[str] = field(default_factory=list)
    shapes: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


def screenshot(app: App[Any], title: str | None, *, simplify: bool) -> str:
    """What `app` shows now."""
    screens, (width, height) = app._background_screens, app.size
    shown = app.screen._compositor.render_update(full=True, screen_stack=screens, simplify=simplify)
    return picture(shown or "", width, height, title or app.title, color(app, "background"))


def picture(screen: RenderableType, width: int, height: int, title: str, ground: str) -> str:
    """`ground`: the colour behind the whole."""
    page = _Page()
    for y, line in enumerate(_lines(screen, width, height)):
        x = 0
        for look, run in groupby(_cells(line), key=lambda cell: cell[1]):
            text = "".join(character for character, _ in run)
            _run(page, look, text, x, y, ground)
            x += len(text)
    return _document(page, width, height, title, ground)


def _lines(screen: RenderableType, width: int, height: int) -> Sequence[list[Segment]]:
    console = Console(
        width=width, height=height, file=io.StringIO(), force_terminal=True, color_system="truecolor", record=True,
        legacy_windows=False, safe_box=False,
    )  # fmt: skip
    console.print(screen)
    return list(Segment.split_lines(Segment.filter_control(console._record_buffer)))[:height]


def _cells(line: list[Segment]) -> Iterator[tuple[str, Look]]:
    for segment in line:
        look = _look(segment.style or Style(), SVG_EXPORT_THEME)
        for character in segment.text:
            yield character, look


def _look(style: Style, theme: TerminalTheme) -> Look:
    color = style.color.get_truecolor(theme) if style.color else theme.foreground_color
    ground = style.bgcolor.get_truecolor(theme, foreground=False) if style.bgcolor else theme.background_color
    if style.reverse:
        color, ground = ground, color
    if style.dim:
        color = blend_rgb(color, ground, 0.4)
    return Look(color.hex, ground.hex, bool(style.bold), bool(style.italic), bool(style.underline))


def _run(page: _Page, look: Look, text: str, x: int, y: int, ground: str) -> None:
    left, top = x * WIDTH, y * HEIGHT
    if look.ground != ground:
        page.grounds.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{len(text) * WIDTH:.1f}" height="{HEIGHT + 0.2:.1f}"'
            f' fill="{look.ground}"/>'
        )
    at = 0
    for character, same in groupby(text):
        count = len(list(same))
        drawn = shape(character, count, left + at * WIDTH, top, WIDTH, HEIGHT, look.color)
        if drawn:
            page.shapes.append(drawn)
            text = text[:at] + " " * count + text[at + count :]
        at += count
    for start, word in _words(text):
        page.texts.append(_text(word, left + start * WIDTH, top + _BASELINE, look))


def _words(text: str) -> Iterator[tuple[int, str]]:
    """What lies between two or more spaces, and where it begins."""
    at = 0
    for part in text.split("  "):
        if part.strip():
            lead = len(part) - len(part.lstrip())
            yield at + lead, part.strip()
        at += len(part) + 2


def _text(word: str, left: float, baseline: float, look: Look) -> str:
    """A place for each character: renderers agree on little else."""
    places = " ".join(f"{left + index * WIDTH:.1f}" for index in range(len(word)))
    extras = ' font-weight="bold"' if look.bold else ""
    extras += ' font-style="italic"' if look.italic else ""
    extras += ' text-decoration="underline"' if look.underline else ""
    return f'<text x="{places}" y="{baseline:.1f}" fill="{look.color}"{extras}>{escape(word)}</text>'


def _document(page: _Page, width: int, height: int, title: str, ground: str) -> str:
    inner_width, inner_height = width * WIDTH, height * HEIGHT
    whole_width, whole_height = inner_width + 2 * _MARGIN, inner_height + _BAR + _MARGIN
    buttons = "".join(
        f'<circle cx="{_MARGIN + 8 + 20 * number}" cy="{_BAR / 2:.1f}" r="6" fill="{color}"/>'
        for number, color in enumerate(_BUTTONS)
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole_width:.1f} {whole_height:.1f}">',
            f'<rect x="0.5" y="0.5" width="{whole_width - 1:.1f}" height="{whole_height - 1:.1f}" rx="9"'
            f' fill="{ground}" stroke="#888" stroke-opacity="0.4"/>',
            buttons,
            f'<text x="{whole_width / 2:.1f}" y="{_BAR / 2 + 5:.1f}" text-anchor="middle" fill="#888"'
            f' font-family="sans-serif" font-size="14">{escape(title)}</text>',
            f'<g transform="translate({_MARGIN} {_BAR})" font-family="{_FONT}" font-size="{_FONT_SIZE}"'
            ' xml:space="preserve">',
            *page.grounds,
            *page.shapes,
            *page.texts,
            "</g>",
            "</svg>",
            "",
        ]
    )
