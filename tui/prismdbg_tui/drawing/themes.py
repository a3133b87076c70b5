"""Our own two themes, beside Textual's."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.theme import BUILTIN_THEMES, Theme

from prismdbg.errors import UsageError, quoted, suggestion
from prismdbg.settings.user_config import user_config

THEMES = (
    Theme(
        name="prism-dark",
        primary="#3d7eff",
        secondary="#7aa2f7",
        accent="#ffb454",
        foreground="#d5dbe8",
        background="#0b0f17",
        surface="#131a26",
        panel="#1a2333",
        success="#4cd08d",
        warning="#ffd866",
        error="#ff5d6c",
        dark=True,
        variables={"surface-lighten-2": "#2a3650", "border": "#2a3650"},
    ),
    Theme(
        name="prism-light",
        primary="#1f5fd0",
        secondary="#4a6fb5",
        accent="#b35c00",
        foreground="#1d2533",
        background="#fbfcfe",
        surface="#eef2f8",
        panel="#e3e9f3",
        success="#157f4c",
        warning="#8a6a00",
        error="#c4001d",
        dark=False,
        variables={"surface-lighten-2": "#c9d3e4", "border": "#c9d3e4"},
    ),
)


def use_themes(app: App[Any]) -> None:
    """Makes them known, and begins with the one in the user's `config.toml`, if there is one."""
    for theme in THEMES:
        app.register_theme(theme)
    app.theme = own_theme()


def own_theme() -> str:
    """Its name. To be asked before a screen starts: `UsageError` where nobody knows the one in `config.toml`."""
    known = {*BUILTIN_THEMES, *(theme.name for theme in THEMES)}
    chosen = user_config().theme or THEMES[0].name
    if chosen not in known:
        raise UsageError(
            f"{user_config().path}: unknown theme {quoted(chosen)}{suggestion(chosen, known)}",
            hint=f"use one of: {' '.join(sorted(known))}",
        )
    return chosen
