"""Files of this machine that a capsule names: opened through no link, and known again by whoever opens them later.

Between a look at a name and its use somebody may put another file there, or a link. So what was looked at is named by
its real path and the number of its inode, and whoever binds or copies it opens it by that path, follows no link, and
compares.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from prismdbg.capsule import rank_path
from prismdbg.errors import FacilityError

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Known:
    """A file or folder as it was looked at. No part of `path` is a link."""

    path: str
    device: int
    inode: int


def known(path: str) -> Known:
    """What the name leads to now, also through links. `OSError` where there is nothing, or it is the kernel's."""
    with held(path) as (found, _):
        return found


@contextmanager
def held(path: str) -> Iterator[tuple[Known, Path]]:
    """What the name leads to now, also through links, and a path that leads to it as long as this lasts, whatever has
    its name by then. `OSError` as of `known`."""
    real = os.path.realpath(path)
    descriptor = open_exact(real)
    try:
        yield _known(real, descriptor), Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def open_exact(path: str) -> int:
    """A descriptor (O_PATH) of what lies at this very path. `OSError` where a part of it is a link (ELOOP, ENOTDIR), or
    where it belongs to the kernel."""
    if reason := rank_path.problem(path):
        raise OSError(errno.EPERM, f"it {reason}", path)
    *folders, name = path[1:].split("/")
    at = os.open("/", _FOLDER)
    try:
        for folder in folders:
            above, at = at, os.open(folder, _FOLDER, dir_fd=at)
            os.close(above)
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)
    if stat.S_ISLNK(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return found


def open_real(path: str) -> BinaryIO:
    """For reading: a regular file at this very path. A pipe or a device is not even opened."""
    found = open_exact(path)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        return os.fdopen(os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    finally:
        os.close(found)


def open_known(file: Known) -> BinaryIO:
    """For reading. `FacilityError` where another file is there by now."""
    try:
        content = open_real(file.path)
    except OSError as error:
        raise replaced(file.path) from error
    if _known(file.path, content.fileno()) == file:
        return content
    content.close()
    raise replaced(file.path)


def replaced(path: str) -> FacilityError:
    return FacilityError(f"{path} was replaced while the replay was started", hint="try again")


def known_of(content: BinaryIO, path: str) -> Known:
    """Of a file that `open_real` has opened at `path`."""
    return _known(path, content.fileno())


def _known(path: str, descriptor: int) -> Known:
    status = os.fstat(descriptor)
    return Known(path, status.st_dev, status.st_ino)
