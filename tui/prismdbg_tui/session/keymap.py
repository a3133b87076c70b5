"""Keys of one's own: `keys.toml` in the user's configuration, action = "key" or a list of keys.

next = "F10"
until = ["t", "ctrl+g"]
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from textual.keys import Keys, _character_to_key, format_key

from prismdbg.errors import UsageError
from prismdbg.settings.user_config import folder, tables_of, user_config
from prismdbg_tui.compared import keys as of_sweep
from prismdbg_tui.overview import keys as of_overview
from prismdbg_tui.recorded_job import keys as of_job
from prismdbg_tui.session.actions import ACTIONS, Action

SCREENS = {
    "": ACTIONS,
    of_overview.TABLE: of_overview.OVERVIEW_ACTIONS,
    of_job.TABLE: of_job.JOB_ACTIONS,
    of_sweep.TABLE: of_sweep.SWEEP_ACTIONS,
}  # by the table in which their keys stand
KEYS_FILE = "keys.toml"
RESERVED = ("ctrl+p", "ctrl+q", "ctrl+c")  # Textual's own
ESCAPE = "escape"  # out of a line, out of what takes long
_MODIFIERS = frozenset(["ctrl", "shift", "alt", "super", "hyper", "meta"])
_NAMES = frozenset(key.value.rpartition("+")[2] for key in Keys) | {_character_to_key(chr(c)) for c in range(32, 127)}


def own_keys(table: str = "") -> dict[str, str]:
    """Keys by action, as Textual wants them, of `keys.toml` or of `[keys]` in `config.toml`. `UsageError` names what is
    wrong there, also for another screen: from one screen you come to others.

    table: one of `SCREENS`.
    """
    config, path = user_config(), folder() / KEYS_FILE
    written = tables_of(path)
    if written and config.keys:
        raise UsageError(f"{path} and {config.path} both choose keys", hint="keep the keys in one of them")
    place, keys = (path, written) if written else (config.path, config.keys)
    return {name: chosen_keys(place, keys, actions, name) for name, actions in SCREENS.items()}[table]


def read_keys(path: Path, actions: Sequence[Action] = ACTIONS, table: str = "") -> dict[str, str]:
    return chosen_keys(path, tables_of(path), actions, table)


def chosen_keys(
    path: Path, written: Mapping[str, Any], actions: Sequence[Action] = ACTIONS, table: str = ""
) -> dict[str, str]:
    chosen = written.get(table, {}) if table else {name: v for name, v in written.items() if name not in SCREENS}
    if not isinstance(chosen, dict):
        heading = table if path.name == KEYS_FILE else f"keys.{table}"
        raise UsageError(
            f"{path}: {heading} must be a table of keys", hint=f'write [{heading}], then lines like: help = "f1"'
        )
    place = f"{path}: {table}" if table else str(path)
    found: dict[str, str] = {}
    for written_name, value in chosen.items():
        name = _action_name(place, written_name, actions)
        if name in found:
            raise UsageError(f"{place}: {written_name} is {name}, which is there, too", hint="keep one of them")
        found[name] = _keys(place, written_name, value)
    _check_doubles(place, found, actions)
    return found


def _action_name(place: str, written: str, actions: Sequence[Action]) -> str:
    """Also of what the console calls it, and with hyphens. Of several with one verb it is the first."""
    names = {_plain(action.verb): action.name for action in reversed(actions) if action.verb}
    names |= {action.name: action.name for action in actions}
    name = names.get(_plain(written))
    if name is None:
        known = " ".join(action.name for action in actions)
        raise UsageError(f"{place}: unknown action {written!r}", hint=f"use one of: {known}")
    return name


def _plain(name: str) -> str:
    return name.replace(" ", "_").replace("-", "_")


def _keys(place: str, name: str, value: object) -> str:
    keys = [value] if isinstance(value, str) else value
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) and key for key in keys):
        raise UsageError(
            f"{place}: {name} takes a key or a list of keys", hint='write for instance next = ["n", "f10"]'
        )
    named = [_named(key) for key in keys]
    for given, key in zip(keys, named, strict=True):
        if key in (*RESERVED, ESCAPE):
            whose = "the key that closes screens" if key == ESCAPE else "the terminal toolkit's own"
            raise UsageError(f"{place}: {name} cannot have {key}", hint=f"choose another key: that one is {whose}")
        if not _is_key(key):
            hint = 'use a character, or for instance "f10", "home", "space", "ctrl+g", "alt+n"'
            raise UsageError(f"{place}: {name}: unknown key {given!r}", hint=hint)
    return ",".join(named)


def _named(key: str) -> str:
    """`,` is written as a character and known by its name; a terminal sends `N` for shift+n, and ctrl+g for ctrl+G."""
    *modifiers, last = key.split("+") if key != "+" else [key]
    modifiers = [modifier.lower() for modifier in modifiers]
    if modifiers == ["shift"] and len(last) == 1 and last.isalpha():
        return last.upper()
    if len(last) == 1:
        return "+".join([*modifiers, _character_to_key(last.lower() if modifiers else last)])
    return "+".join([*modifiers, last.lower()])


def _is_key(named: str) -> bool:
    *modifiers, last = named.split("+")
    known = last in _NAMES or len(last) == 1 or last == _character_to_key(_character(last))
    return known and set(modifiers) <= _MODIFIERS


def _character(name: str) -> str:
    """Of a key that is named as Unicode names it; a space for others."""
    try:
        return unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return " "


def _check_doubles(place: str, chosen: Mapping[str, str], actions: Sequence[Action]) -> None:
    """A pane may use a key that means something else outside of it."""
    owners: dict[tuple[str, str], str] = {}
    for action in actions:
        for key in chosen.get(action.name, action.keys).split(","):
            other = owners.setdefault((action.pane, key), action.name)
            if other != action.name and (action.name in chosen or other in chosen):
                raise UsageError(
                    f"{place}: {shown(key)} is both {other} and {action.name}", hint="give one of them another key"
                )


def in_force(chosen: Mapping[str, str], actions: Sequence[Action] = ACTIONS) -> dict[str, str]:
    """How each action's keys are shown."""
    return {
        action.name: " ".join(shown(key) for key in chosen.get(action.name, action.keys).split(","))
        for action in actions
    }


def shown(key: str) -> str:
    return format_key(key) if len(key) > 1 else key
