"""A file or a folder that a command writes: whole or not at all, and one clear error where it cannot be written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prismdbg.errors import UsageError


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write; it becomes `path` when the block ends well."""
    temporary = _temporary(path)
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise _cannot(path, error) from error
    finally:
        with suppress(OSError):  # where nothing can be written there is nothing to remove
            temporary.unlink()


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """As `whole`, for a folder; one that has something in it is left as it is."""
    temporary = _temporary(path)
    try:
        if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
            raise UsageError(f"{path} already exists and is not an empty folder", hint="choose a new folder")
        temporary.mkdir(mode=0o700)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise _cannot(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def require(path: Path) -> None:
    """Whether it can be written, before anybody works for it."""
    temporary = _temporary(path)
    try:
        temporary.touch()
    except OSError as error:
        raise _cannot(path, error) from error
    temporary.unlink()


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _cannot(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path} cannot be written: {error.strerror or error}", hint="give a place in a folder that may be written to"
    )
