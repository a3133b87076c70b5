"""Options of the commands with a screen: a picture of it in a file, in place of the screen."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prismdbg.cli.click_errors import WrongValue
from prismdbg.errors import UsageError

if TYPE_CHECKING:
    from prismdbg_tui.still_picture import StillPicture

_USUAL = (120, 36)
_LEAST, _MOST = (40, 10), (500, 200)


def pictured(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --picture and --size; `command` gets them as `picture`, None without."""

    @wraps(command)
    def with_picture(*arguments: Any, picture: Path | None, size: tuple[int, int] | None, **others: Any) -> Any:
        if picture is None and size is not None:
            raise UsageError("--size is the size of a picture", hint="add --picture FILE, or leave --size out")
        found = None if picture is None else _still(picture, size or _USUAL, others["capsule"])
        return command(*arguments, picture=found, **others)

    for add in (_SIZE, _PICTURE):
        with_picture = add(with_picture)
    return with_picture


def _still(path: Path, size: tuple[int, int], shown: Path) -> StillPicture:
    from prismdbg_tui.still_picture import StillPicture

    name = click.get_current_context().info_name
    still = StillPicture(path, size, f"prismdbg {name} {shown.name or shown}")
    still.require()
    return still


def _cells(text: str) -> tuple[int, int]:
    columns, _, lines = str(text).partition("x")
    size = (int(columns), int(lines)) if _is_number(columns) and _is_number(lines) else (0, 0)
    if not all(least <= each <= most for least, each, most in zip(_LEAST, size, _MOST, strict=True)):
        raise WrongValue(f"{text!r} is not a size from 40x10 to 500x200", hint="write columns x lines, as in 120x36")
    return size


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 5


_PICTURE = click.option(
    "--picture",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a picture of the first screen to FILE (.svg or .png) and exit.",
)
_SIZE = click.option(
    "--size",
    type=_cells,
    metavar="COLUMNSxLINES",
    help="Draw --picture as a terminal of this size.  [default: 120x36]",
)
