"""What is still being written: a temporary sibling, locked while its writer lives.

One that a `kill -9` left behind can so be told from one that is being written, and removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MARK = ".partial-"


@contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """A new locked folder beside `path`, 0700. Removed at the end, unless it was renamed to `path`.

    Folders that writers who were killed have left there go first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    folder, descriptor = _locked_folder(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _locked_folder(path: Path) -> tuple[Path, int]:
    """Until it is locked it looks abandoned, and may be removed by another writer."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}{_MARK}", dir=path.parent))
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with contextlib.suppress(BlockingIOError):
                lock(descriptor)
                if folder.exists():
                    return folder, descriptor
            os.close(descriptor)


def remove_abandoned(folder: Path) -> None:
    """Removes partial folders in there that nobody writes any more."""
    for left in folder.iterdir():
        if not is_partial(left) or not left.is_dir() or left.is_symlink():
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                lock(descriptor)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(descriptor)


def partial_name(path: Path, word: str) -> Path:
    """The name beside `path` for something unfinished; `word` makes it this process's own."""
    return path.with_name(f".{path.name}{_MARK}{word}-{os.getpid()}")


def lock(descriptor: int) -> None:
    """Held until the file is closed or the process ends."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_partial(path: Path) -> bool:
    return path.name.startswith(".") and _MARK in path.name


def is_abandoned(path: Path) -> bool:
    """Whether nobody writes this partial any more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        lock(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
