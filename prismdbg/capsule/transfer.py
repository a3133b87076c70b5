"""Brings one file into a capsule and hashes it on the way: what is hashed is what was written."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from prismdbg.capsule.limits import GROWTH_FREE_BYTES, MAX_GROWTH
from prismdbg.capsule.manifest import FileEntry
from prismdbg.errors import CapsuleError

CHUNK_BYTES = 1 << 20
PARTS, PART_BYTES = 256, 1 << 20  # of `hash_parts`
FILE_MODE = 0o600
_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file, where the file system can
_ZEROS = bytes(CHUNK_BYTES)
Read = Callable[[int], None]


def _untold(_: int) -> None:
    pass


class Transfer(StrEnum):
    """COPY for files that may still change. LINK and MOVE cost nothing, for files that never change again."""

    COPY = "copy"
    LINK = "link"
    MOVE = "move"


def bring(source: Path, target: Path, transfer: Transfer, read: Read = _untold) -> FileEntry:
    """Makes `target` from the plain file `source`, mode 0600. Links and special files are refused. `read` is told of
    each part that is done, how many bytes it had."""
    _require_plain(source)
    if transfer is not Transfer.COPY and _rename_or_link(source, target, transfer):
        if transfer is Transfer.MOVE:
            target.chmod(FILE_MODE)
        return hash_file(target, read)
    entry = _copy(source, target, read)
    if transfer is Transfer.MOVE:
        source.unlink()
    return entry


def bring_parts(source: Path, target: Path, parts: Iterable[tuple[int, int]], read: Read = _untold) -> FileEntry:
    """A copy of the source that holds only these of its bytes, from a first to before a last one. Zeros stand for the
    others. What `bring` refuses is refused."""
    _require_plain(source)
    with open_plain(source) as file, create(target) as out:
        size = os.fstat(file.fileno()).st_size
        for start, stop in sorted(parts):
            file.seek(start)
            out.seek(start)
            while chunk := file.read(min(max(stop - file.tell(), 0), CHUNK_BYTES)):
                write_sparse(out, chunk)
        out.truncate(size)
    return hash_file(target, read)


def bring_masked(source: Path, target: Path, parts: Iterable[tuple[int, int]], mask: bytes) -> FileEntry:
    """A copy of the source with `mask`, one byte, in place of each byte from a first to before a last one."""
    bring(source, target, Transfer.COPY)
    with target.open("r+b") as out:
        for start, stop in parts:
            out.seek(start)
            out.write(mask * (stop - start))
    return hash_file(target)


def write_new(target: Path, data: bytes) -> FileEntry:
    with create(target) as out:
        out.write(data)
    return FileEntry(len(data), hashlib.sha256(data).hexdigest())


def create(target: Path) -> BinaryIO:
    """A new file, mode 0600; never one that is there already or that a link leads to."""
    return os.fdopen(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), "w+b")


def open_plain(path: Path) -> BinaryIO:
    """For reading. `OSError` for a link, and for a pipe or a device, which may hold whoever opens or reads it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def sync_tree(folder: Path) -> None:
    """The folder and all that is in it are on the disk when this returns; links are not followed out of it."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Brings a file to the disk, or the names in a folder. Some file systems refuse folders: that is no error."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
    finally:
        os.close(descriptor)


def data_parts(descriptor: int) -> Iterator[tuple[int, int]]:
    """Where an open file has data, in order: the first byte and the one after the last. Between them are holes, which
    read as zeros."""
    size, stop = os.fstat(descriptor).st_size, 0
    while stop < size:
        try:
            start = os.lseek(descriptor, stop, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return
            if error.errno != errno.EINVAL:
                raise
            start, hole = stop, size  # this file system does not say
        else:
            hole = os.lseek(descriptor, start, os.SEEK_HOLE)
        stop = min(hole, size)
        yield start, stop


def require_content(path: Path) -> None:
    """`CapsuleError` where it is nearly all hole: a file may have holes, but reading nothing else takes for ever."""
    if problem := nearly_empty(path.stat()):
        raise CapsuleError(f"{path} {problem}", hint="fetch it again: the file was altered")


def _require_plain(source: Path) -> None:
    if not stat.S_ISREG(source.lstat().st_mode):
        raise CapsuleError(
            f"{source} is not a regular file; a capsule contains only regular files",
            hint="fetch the capsule again: this copy was altered",
        )
    require_content(source)


def nearly_empty(status: os.stat_result) -> str:
    """Why it is not read, as the end of a sentence; empty where it can be."""
    most = GROWTH_FREE_BYTES + MAX_GROWTH * 512 * status.st_blocks
    if status.st_size <= most:
        return ""
    return f"has {status.st_size:,} bytes, but is nearly all holes; {most:,} is the limit"


def hash_file(path: Path, read: Read = _untold) -> FileEntry:
    """`read` is told of each part, how many bytes it had."""
    with open_plain(path) as file:
        return hash_content(file, read)


def hash_content(file: BinaryIO, read: Read = _untold) -> FileEntry:
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
        read(len(chunk))
    return FileEntry(size, digest.hexdigest())


def hash_parts(file: BinaryIO, size_bytes: int) -> FileEntry:
    """Of its length and of parts from its beginning to its end: a data set of terabytes is not read for a capsule."""
    digest = hashlib.sha256(b"%d" % size_bytes)
    for number in range(PARTS):
        file.seek(number * (size_bytes - PART_BYTES) // (PARTS - 1))
        digest.update(file.read(PART_BYTES))
    return FileEntry(size_bytes, digest.hexdigest())


def _rename_or_link(source: Path, target: Path, transfer: Transfer) -> bool:
    """False where the file system or the owner does not allow it, or a link would have another mode, which its source
    keeps: then it is copied."""
    if transfer is Transfer.LINK and stat.S_IMODE(source.lstat().st_mode) != FILE_MODE:
        return False
    try:
        if transfer is Transfer.MOVE:
            source.rename(target)
        else:
            os.link(source, target, follow_symlinks=False)
    except OSError:
        return False
    return True


def _copy(source: Path, target: Path, read: Read) -> FileEntry:
    with open_plain(source) as file, create(target) as out:
        try:
            fcntl.ioctl(out.fileno(), _FICLONE, file.fileno())
        except OSError:
            return _copy_blocks(file, out, read)
    return hash_file(target, read)


def _copy_blocks(file: BinaryIO, out: BinaryIO, read: Read) -> FileEntry:
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
        write_sparse(out, chunk)
        read(len(chunk))
    out.truncate(size)
    return FileEntry(size, digest.hexdigest())


def write_sparse(out: BinaryIO, chunk: bytes) -> None:
    """Zeros become holes, for log segments are allocated whole and mostly empty. The
    caller cuts the file to its size at the end."""
    if len(chunk) <= CHUNK_BYTES and chunk == _ZEROS[: len(chunk)]:
        out.seek(len(chunk), os.SEEK_CUR)
    else:
        out.write(chunk)
