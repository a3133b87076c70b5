"""A file or a folder that a command writes: whole or not at all, and one clear error where it cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prismdbg.capsule.new_file import cannot_write, whole
from prismdbg.capsule.partial import partial_file, partial_folder
from prismdbg.errors import UsageError

__all__ = ["require", "whole", "whole_folder"]


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """As `whole`, for a folder; one that has something in it is left as it is."""
    try:
        if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
            raise UsageError(f"{path} already exists and is not an empty folder", hint="choose a new folder")
        path.parent.stat()  # it is not made here
        with partial_folder(path) as partial:
            yield partial
            partial.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error


def require(path: Path) -> None:
    """Whether it can be written, before anybody works for it."""
    try:
        with partial_file(path):
            pass
    except OSError as error:
        raise cannot_write(path, error) from error
