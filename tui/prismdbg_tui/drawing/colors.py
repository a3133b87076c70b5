"""The theme's colours as `#rrggbb`, which blocks and faded text are mixed from. Themes name some of them otherwise."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from textual.app import App
from textual.color import Color, ColorParseError

_FALLBACK = {"dark": "#d0d6e0", "light": "#303844"}


def color(app: App[Any], name: str) -> str:
    """`accent`, `error`, `surface-lighten-2`, ..."""
    return _solid(app.theme_variables.get(name, ""), app.current_theme.dark)


@lru_cache(maxsize=512)
def _solid(text: str, dark: bool) -> str:
    try:
        return Color.parse(text).hex6
    except ColorParseError:
        return _FALLBACK["dark" if dark else "light"]


@lru_cache(maxsize=4096)
def faded(text: str, background: str, share: float) -> str:
    return Color.parse(text).blend(Color.parse(background), share).hex6


@lru_cache(maxsize=1024)
def readable(background: str) -> str:
    """Text over it."""
    return "#101418" if Color.parse(background).brightness > 0.45 else "#f4f6fa"
