"""The user's own defaults: `config.toml` in their configuration folder. Standard library only.

Defaults of options stand in a table of their command's name; `theme`, `user-code`, `[keys]` and `[secrets]` are for all
commands.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from prismdbg.errors import UsageError, quoted
from prismdbg.model.typed_path import home, typed_path

THEME, USER_CODE, KEYS, SECRETS = "theme", "user-code", "keys", "secrets"
_SECRET_LISTS = ("names", "values")
_LIST_HINT = 'write for instance names = ["ACME_LICENSE"]'


def folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or home() / ".config") / "prismdbg"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserConfig:
    """user_code: absolute paths. commands: options by the name of their command. secret_names, secret_values: regular
    expressions of names under which secrets stand, and of secrets."""

    path: Path
    theme: str = ""
    user_code: tuple[str, ...] = ()
    keys: Mapping[str, Any] = field(default_factory=dict)
    secret_names: tuple[re.Pattern[str], ...] = ()
    secret_values: tuple[re.Pattern[str], ...] = ()
    commands: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def user_config() -> UserConfig:
    """Of this process, read once. `UsageError` says what is wrong in the file."""
    return _read(folder() / "config.toml")


@cache
def _read(path: Path) -> UserConfig:
    return parse(path, tables_of(path))


def tables_of(path: Path) -> dict[str, Any]:
    """What a TOML file holds; empty where there is none."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", hint="check its permissions and its encoding, or remove it"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}", hint="write TOML at this line") from error


def parse(path: Path, written: Mapping[str, Any]) -> UserConfig:
    theme = written.get(THEME, "")
    if not isinstance(theme, str):
        raise UsageError(f"{path}: theme must be a name", hint='write for instance theme = "nord"')
    tables = {name: value for name, value in written.items() if name not in (THEME, USER_CODE)}
    for name, value in tables.items():
        if not isinstance(value, dict):
            raise UsageError(f"{path}: {name} stands outside a table", hint=f"write it below a line [COMMAND]: {name}")
    secrets = tables.pop(SECRETS, {})
    if unknown := [name for name in secrets if name not in _SECRET_LISTS]:
        raise UsageError(f"{path}: unknown {quoted(unknown[0])} in [{SECRETS}]", hint=_LIST_HINT)
    names, values = (_patterns(path, name, secrets.get(name, [])) for name in _SECRET_LISTS)
    keys = tables.pop(KEYS, {})
    return UserConfig(
        path=path,
        theme=theme,
        user_code=_user_code(path, written.get(USER_CODE, [])),
        keys=keys,
        secret_names=names,
        secret_values=values,
        commands=tables,
    )


def _user_code(path: Path, written: object) -> tuple[str, ...]:
    listed = written if isinstance(written, list) else [written]
    folders = [typed_path(text) for text in listed if isinstance(text, str) and text]
    if len(folders) < len(listed) or not all(folder.is_absolute() for folder in folders):
        raise UsageError(
            f"{path}: {USER_CODE} must be a list of absolute paths", hint=f'write for instance {USER_CODE} = ["~/src"]'
        )
    return tuple(map(str, folders))


def _patterns(path: Path, name: str, texts: object) -> tuple[re.Pattern[str], ...]:
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise UsageError(f"{path}: {name} in [{SECRETS}] must be a list of regular expressions", hint=_LIST_HINT)
    try:
        return tuple(map(re.compile, texts))
    except re.error as error:
        raise UsageError(
            f"{path}: {name} in [{SECRETS}]: {error}", hint="write regular expressions of Python"
        ) from None
