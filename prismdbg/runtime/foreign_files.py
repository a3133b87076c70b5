"""Files that a replayed rank may have put there or altered, read and removed without trusting them.

A name may be a link, a FIFO, a folder or a file of any length by now. Nothing here follows a link, waits for the other
end of a FIFO, or reads more than it was told to.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from prismdbg.model.meanwhile import working

MAX_LOG_BYTES = 64 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_regular(name: str | Path, folder: int | None = None) -> int:
    """A descriptor for reading. `OSError` where it is missing, or anything but a regular file."""
    descriptor = os.open(name, _READ, dir_fd=folder)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(f"{name} is not a regular file")


def open_folder(name: str | Path, folder: int | None = None) -> int:
    """A descriptor of a folder that is no link."""
    return os.open(name, _FOLDER, dir_fd=folder)


def read_regular(path: Path, most_bytes: int) -> bytes:
    """At most its first `most_bytes`; empty where there is no such regular file."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return b""
    try:
        return read_at(descriptor, 0, most_bytes)
    finally:
        os.close(descriptor)


def read_at(descriptor: int, start: int, most_bytes: int) -> bytes:
    """Up to `most_bytes` from `start` on; fewer at the end of the file."""
    data = bytearray()
    while len(data) < most_bytes and (more := os.pread(descriptor, most_bytes - len(data), start + len(data))):
        data += more
    return bytes(data)


def remove(name: str, folder: int) -> None:
    """Whatever it is. Folders are emptied without recursion: they may be nested to any depth.

    Nobody else may change them meanwhile.
    """
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=folder)
        return
    waiting, done = [name], 0
    with working() as tell:
        while waiting:
            tell(f"removing folders: {done:,} of {done + len(waiting):,} or more")
            waiting += _emptied(waiting.pop(), folder, len(waiting))
            done += 1


def _emptied(name: str, folder: int, number: int) -> list[str]:
    """Removes it; gives new names, in `folder`, of the folders that were in it."""
    with contextlib.suppress(OSError):
        os.chmod(name, 0o700, dir_fd=folder)
    inner, moved = open_folder(name, folder), []
    try:
        for entry in list(os.scandir(inner)):
            if entry.is_dir(follow_symlinks=False):
                moved.append(_unused(folder, number))
                number += 1
                with contextlib.suppress(OSError):
                    os.chmod(entry.name, 0o700, dir_fd=inner)  # a folder that moves is written to
                os.rename(entry.name, moved[-1], src_dir_fd=inner, dst_dir_fd=folder)
            else:
                os.unlink(entry.name, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)
    return moved


def _unused(folder: int, number: int) -> str:
    while True:
        name = f".removed-{number}-{os.urandom(4).hex()}"
        try:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return name
