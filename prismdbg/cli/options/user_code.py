"""`--user-code`, for commands that name lines of the program, and what holds for the others."""

from __future__ import annotations

import os

import click

from prismdbg.model import user_code
from prismdbg.model.typed_path import typed_path
from prismdbg.settings.user_config import UserConfig

VARIABLE = "PRISMDBG_USER_CODE"


def begin(config: UserConfig) -> None:
    """Of this command: from the variable, else from the configuration file."""
    listed = filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))
    user_code.use(tuple(map(_absolute, listed)) or config.user_code)


def as_default() -> dict[str, list[str]]:
    """What was begun with, by the name of the option; empty where nothing was."""
    return {"user_code": list(paths)} if (paths := user_code.paths()) else {}


def tell_children() -> None:
    """For prismdbg processes that this one starts, as those behind pages of a browser."""
    os.environ[VARIABLE] = os.pathsep.join(user_code.paths())


def _use(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> None:
    if given:
        user_code.use(tuple(map(_absolute, given)))


def _absolute(path: str) -> str:
    """Links are not followed: stacks have paths as Python imported them."""
    return os.path.normpath(typed_path(path).absolute())


USER_CODE = click.option(
    "--user-code",
    multiple=True,
    metavar="PATH",
    expose_value=False,
    callback=_use,
    help="Treat only code below PATH as yours; stacks and findings name its lines. Can be repeated.  "
    "[default: all code that is not installed]",
)
