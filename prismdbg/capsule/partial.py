"""What is still being written: a temporary sibling, locked while its writer lives.

One that a `kill -9` left behind can so be told from one that is being written, and removed.
"""

from __future__ import annotations

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
    """A new locked folder beside `path`, 0700. Removed at the end, unless it was renamed to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}{_MARK}", dir=path.parent))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock(descriptor)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
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
