"""Keys of one's own: `keys.toml` in the user's configuration, action = "key" or a list of keys.

next = "F10"
until = ["t", "ctrl+g"]
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from textual.keys import _character_to_key, format_key

from prismdbg.errors import UsageError
from prismdbg_tui.actions import ACTIONS, BY_NAME

RESERVED = ("ctrl+p", "ctrl+q", "ctrl+c")  # Textual's own


def config_file() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "prismdbg" / "keys.toml"


def read_keys(path: Path) -> dict[str, str]:
    """Keys by action, as Textual wants them; empty where there is no file. `UsageError` names what is wrong."""
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}", hint='write lines like: next = "f10"') from error
    found = {name: _keys(path, name, value) for name, value in table.items()}
    _check_doubles(path, found)
    return found


def _keys(path: Path, name: str, value: object) -> str:
    if name not in BY_NAME:
        raise UsageError(f"{path}: there is no action {name!r}", hint=f"there are: {' '.join(BY_NAME)}")
    keys = [value] if isinstance(value, str) else value
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) and key for key in keys):
        raise UsageError(f"{path}: {name} takes a key or a list of keys", hint='for instance: next = ["n", "f10"]')
    named = [_named(key) for key in keys]
    if taken := [key for key in named if key in RESERVED]:
        raise UsageError(f"{path}: {name} cannot have {taken[0]}", hint="that key is the terminal toolkit's own")
    return ",".join(named)


def _named(key: str) -> str:
    """`,` is written as a character and known by its name."""
    *modifiers, last = key.split("+") if key != "+" else [key]
    name = _character_to_key(last) if len(last) == 1 else last.lower()
    return "+".join([*(modifier.lower() for modifier in modifiers), name])


def _check_doubles(path: Path, chosen: Mapping[str, str]) -> None:
    owners: dict[str, str] = {}
    for action in ACTIONS:
        for key in chosen.get(action.name, action.keys).split(","):
            if key in owners and (action.name in chosen or owners[key] in chosen):
                raise UsageError(
                    f"{path}: {shown(key)} is both {owners[key]} and {action.name}", hint="give one of them another key"
                )
            owners[key] = action.name


def in_force(chosen: Mapping[str, str]) -> dict[str, str]:
    """How each action's keys are shown."""
    return {
        action.name: " ".join(shown(key) for key in chosen.get(action.name, action.keys).split(","))
        for action in ACTIONS
    }


def shown(key: str) -> str:
    return format_key(key) if len(key) > 1 else key
