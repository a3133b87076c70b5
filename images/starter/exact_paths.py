"""Files by the very path that the kernel gave for them: no link on the way is followed, none of the kernel's own views
is touched. For what is done with more rights than the rank has, at names that the rank can replace.

Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import Any, BinaryIO

from syscalls import PlaceError, libc

OPENAT2 = 437  # on every architecture
AT_FDCWD = -100
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS = 0x02, 0x04
KERNELS = ("/proc", "/sys", "/dev")
SHARED_MEMORY = "/dev/shm"
COPY_BYTES = 1 << 20
PARTS, PART_BYTES = 64, 64 << 10  # of a file that is not copied: the rank stands still meanwhile


class OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def is_kernels(path: str) -> bool:
    """Whether it lies in /proc, /sys or /dev, where writing sets something; shared memory is the program's."""
    inside = any(f"{path}/".startswith(f"{view}/") for view in KERNELS)
    return inside and not path.startswith(f"{SHARED_MEMORY}/")


def open_exact(path: str, flags: int, mode: int = 0) -> int:
    """As `os.open`; `OSError` (ELOOP) where any part of the path is a link."""
    if is_kernels(path) and path != SHARED_MEMORY:
        raise PlaceError(f"{path} belongs to the kernel: it is not opened for the rank")
    return _open(path, flags, mode)


def open_known(known: dict[str, Any]) -> int:
    """Of this machine (O_PATH), what was looked at when the replay was planned: its path leads through no link, and it
    has not been replaced."""
    path = known["path"]
    try:
        found = open_exact(path, os.O_PATH | os.O_NOFOLLOW)
    except OSError as error:
        raise PlaceError(f"{path} was replaced while the replay was started: {error.strerror}") from None
    if is_known(os.fstat(found), known):
        return found
    os.close(found)
    raise PlaceError(f"{path} was replaced while the replay was started")


def is_known(status: os.stat_result, known: dict[str, Any]) -> bool:
    return (status.st_dev, status.st_ino) == (known["device"], known["inode"])


def open_terminals() -> int:
    """The device that makes a new terminal; no link leads to it."""
    return _open("/dev/pts/ptmx", os.O_RDWR | os.O_NOCTTY)


def _open(path: str, flags: int, mode: int = 0) -> int:
    how = OpenHow(flags | os.O_CLOEXEC, mode, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
    found = libc.syscall(OPENAT2, AT_FDCWD, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return int(found)


def status_of(path: str) -> os.stat_result | None:
    """None where nothing lies at this very path."""
    try:
        found = open_exact(path, os.O_PATH | os.O_NOFOLLOW)
    except (OSError, PlaceError):
        return None
    try:
        return os.fstat(found)
    finally:
        os.close(found)


def exact_kind(path: str) -> int:
    """As in a file's mode; 0 where nothing lies at this very path. Also of the kernel's: it is only looked at."""
    try:
        found = _open(path, os.O_PATH | os.O_NOFOLLOW)
    except OSError:
        return 0
    try:
        return stat.S_IFMT(os.fstat(found).st_mode)
    finally:
        os.close(found)


def is_behind_link(path: str) -> bool:
    """Whether a folder on the way to it is a link."""
    try:
        os.close(_open(str(Path(path).parent), os.O_PATH))
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def is_file(path: str) -> bool:
    status = status_of(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def is_socket(path: str) -> bool:
    status = status_of(path)
    return status is not None and stat.S_ISSOCK(status.st_mode)


def open_folder(path: str) -> int:
    return open_exact(path, os.O_RDONLY | os.O_DIRECTORY)


def make_folders(path: str) -> None:
    """It and those around it that are missing. `PlaceError` where one of them is a link."""
    missing = []
    folder = Path(path)
    while not _is_folder(str(folder)):
        missing.append(folder.name)
        folder = folder.parent
    for name in reversed(missing):
        parent = open_folder(str(folder))
        try:
            os.mkdir(name, dir_fd=parent)
        finally:
            os.close(parent)
        folder = folder / name


def _is_folder(path: str) -> bool:
    try:
        os.close(open_folder(path))
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise PlaceError(f"{path} is no longer a folder: the program replaced it") from None
        raise
    return True


def unlink(path: str) -> None:
    """Nothing is done where nothing is there."""
    parent = open_folder(str(Path(path).parent))
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(Path(path).name, dir_fd=parent)
    finally:
        os.close(parent)


def open_written(path: str) -> int:
    """A regular file to be written anew in its place; whatever else has its name now is removed."""
    if status_of(path) is None or not is_file(path):
        unlink(path)
    found = open_exact(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    raise PlaceError(f"{path} is not a regular file")


def copy_out(path: str, to: Path) -> os.stat_result:
    """The file's bytes into a new file of ours; what it was."""
    with _open_read(path) as file, to.open("xb") as copy:
        shutil.copyfileobj(file, copy, COPY_BYTES)
        return os.fstat(file.fileno())


def holds(copy: Path, path: str) -> bool:
    """Whether a file of ours is there and has the bytes that the file has now."""
    try:
        with copy.open("rb") as ours, _open_read(path) as file:
            if os.fstat(ours.fileno()).st_size != os.fstat(file.fileno()).st_size:
                return False
            while chunk := ours.read(COPY_BYTES):
                if chunk != file.read(COPY_BYTES):
                    return False
    except FileNotFoundError:
        return False
    return True


def parts_of(path: str, size_bytes: int) -> str:
    """A digest of parts of the file's first bytes, or of all of them where they are few: the first, the last, and some
    in between."""
    digest = hashlib.sha256()
    starts = [*range(0, size_bytes, PART_BYTES)]
    if len(starts) > PARTS:
        starts = [number * (size_bytes - PART_BYTES) // (PARTS - 1) for number in range(PARTS)]
    with _open_read(path) as file:
        for start in starts:
            file.seek(start)
            digest.update(file.read(min(PART_BYTES, size_bytes - start)))
    return digest.hexdigest()


def _open_read(path: str) -> BinaryIO:
    """`PlaceError` for what is not a regular file."""
    file = os.fdopen(open_exact(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise PlaceError(f"{path} is not a regular file")
