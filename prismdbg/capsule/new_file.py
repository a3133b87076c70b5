"""A file that a person names: checked before anything is made for it, and written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from prismdbg.capsule.partial import partial_file
from prismdbg.errors import FacilityError, PrismError, UsageError, quoted

Writer = TypeVar("Writer")
_MOST_LINKS = 40  # as the kernel follows
_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_place(path: Path) -> None:
    """Before anything is made for it: `UsageError` where no file can be written at `path`."""
    try:
        path.lstat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # too long, or with a byte that no name has
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{quoted(str(path))} is not a file name: {why}", hint="choose another name") from None
    if path.is_dir():
        raise UsageError(f"{path} is a directory", hint="choose a file name")
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written: no such directory: {path.parent}", hint="create it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"{path} cannot be written: permission denied", hint="choose another place")


def by_suffix(path: Path, writers: Mapping[str, Writer]) -> Writer:
    """The one for the end of its name; `UsageError` where that is none of them."""
    if path.suffix not in writers:
        raise UsageError(
            f"{quoted(str(path))} ends in none of {', '.join(writers)}",
            hint="choose the format by the end of the name",
        )
    return writers[path.suffix]


def check_new(path: Path) -> None:
    """As `check_place`, and `UsageError` where `path` exists."""
    check_place(path)
    if path.exists():
        raise UsageError(f"{path} already exists", hint="choose another name")


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """As `whole`, and `UsageError` where `path` exists."""
    check_new(path)
    with whole(path) as place:
        yield place


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write; it becomes `path` when the block ends well. What is no file, and an open file of a process, as
    /dev/stdout, is written to itself. `UsageError` where it cannot be written, `FacilityError` where the disk is full.
    Any other link is replaced: in a folder like /tmp it may be another user's."""
    try:
        if _is_open_file(path) or (path.exists() and not path.is_file()):
            yield path
            return
        with partial_file(path) as partial:
            yield partial.place
            partial.publish(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def _is_open_file(path: Path) -> bool:
    """Whether its links lead through those of /proc."""
    for _ in range(_MOST_LINKS):
        if Path(os.path.realpath(path.parent)).is_relative_to("/proc"):  # of a ring of links, too
            return True
        if not path.is_symlink():
            return False
        path = path.parent / path.readlink()
    return False


def cannot_write(path: Path, error: OSError) -> PrismError:
    why = f"{path} cannot be written: {error.strerror or error}"
    if error.errno in _FULL:
        return FacilityError(why, hint="free some space there, or choose another place")
    return UsageError(why, hint="give a place in a folder that may be written to")
