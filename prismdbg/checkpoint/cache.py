"""Where prismdbg keeps what it has built or unpacked on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prismdbg.model.typed_path import home

_NOT_FOR_OTHERS = 0o022


def cache_folder() -> Path:
    """PRISMDBG_CACHE, else the user's cache."""
    if given := os.environ.get("PRISMDBG_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or home() / ".cache") / "prismdbg"


def made_cache_folder() -> Path:
    """It is there, and only its owner can write to it, whatever the umask: programs in it are run."""
    folder = cache_folder()
    if not folder.is_dir():  # most often it is there, and maybe not ours to write to
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o777 & ~_NOT_FOR_OTHERS, exist_ok=True)
    return folder


@contextmanager
def written_by_owner_alone() -> Iterator[None]:
    """What this process and those that it starts make meanwhile."""
    before = os.umask(_NOT_FOR_OTHERS)
    os.umask(before | _NOT_FOR_OTHERS)
    try:
        yield
    finally:
        os.umask(before)
