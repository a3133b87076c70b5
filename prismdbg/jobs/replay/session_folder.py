"""The folder of one replay: its sockets, status and output. Locked while its client lives, removed at its end.

What a client that was killed left behind is removed by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prismdbg.capsule.partial import is_abandoned, lock
from prismdbg.errors import FacilityError
from prismdbg.jobs.storage.own_folder import own_folder
from prismdbg.runtime.foreign_files import open_folder, remove

_PASSED_THROUGH = 0o711  # by a rank that is another user


@contextmanager
def session_folder() -> Iterator[Path]:
    if (images := images_base()).is_dir():
        with _alone(images):  # large, so not only the next one who takes images removes them
            _remove_abandoned(images)
    with _locked_folder(sessions_base()) as session:
        yield session


@contextmanager
def checkpoint_folder() -> Iterator[Path]:
    """For images of a rank, which are as large as its memory: on a disk, where a session may lie in memory."""
    with _locked_folder(images_base()) as folder:
        yield folder


@contextmanager
def _locked_folder(base: Path) -> Iterator[Path]:
    base.mkdir(mode=_PASSED_THROUGH, parents=True, exist_ok=True)
    with _alone(base):
        _remove_abandoned(base)
        folder = Path(tempfile.mkdtemp(dir=base))
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        lock(held)
    try:
        yield folder
    finally:
        _remove(folder)
        os.close(held)


def sessions_base() -> Path:
    """Short: an agent's socket path ends at 108 bytes."""
    home = "/run" if os.access("/run", os.W_OK) else "/tmp"
    return own_folder(Path(home), f"prismdbg-replays-{os.getuid()}", _PASSED_THROUGH)


def images_base() -> Path:
    return own_folder(Path("/var/tmp"), f"prismdbg-images-{os.getuid()}", _PASSED_THROUGH)


def _remove_abandoned(base: Path) -> None:
    for left in base.iterdir():
        if left.is_dir() and is_abandoned(left):
            _remove(left)


def _remove(folder: Path) -> None:
    """A replayed rank wrote in it: it may be nested to any depth."""
    parent = open_folder(folder.parent)
    try:
        with contextlib.suppress(OSError):
            remove(folder.name, parent)
    finally:
        os.close(parent)


@contextmanager
def _alone(base: Path) -> Iterator[None]:
    """Between making a folder and locking it, it looks abandoned: one client at a time."""
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise FacilityError(f"{base} belongs to another user", hint="ask its owner to remove it: replays need it")
    descriptor = os.open(base / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # held for milliseconds
        yield
    finally:
        os.close(descriptor)
