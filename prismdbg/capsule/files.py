"""The files a rank reads between A and B: small ones inside the capsule by content, large ones by hash.

A large file stays where it is; at replay it is bound only if it is still the same, byte for byte. So does a file of
credentials, whatever its size: of it the capsule holds size and sha256.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from prismdbg.capsule import checked_json, layout, rank_path, transfer
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.exact_file import Known, known_of, open_real
from prismdbg.capsule.limits import MAX_FILES
from prismdbg.capsule.manifest import FileEntry
from prismdbg.capsule.secrets.private_files import holds_a_key, is_credential, is_private
from prismdbg.errors import CapsuleError

SMALL_FILE_BYTES = 16 << 20
INSIDE_BYTES = 1 << 30  # of all files inside: a data set of pictures has small files, and many
WHOLE_BYTES = 1 << 30  # a longer one is compared by parts of it
TRIES = 3  # of a file that is rewritten meanwhile


class Place(StrEnum):
    INSIDE = "inside"  # in the capsule, under its sha256
    BOUND = "bound"  # on the machine, at its path; compared by size and sha256
    REDACTED = "redacted"  # as BOUND, for it holds credentials; a replay starts without it where it is not the same
    MISSING = "missing"  # could not be read when the capsule was made, or was rewritten each time it was


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFile:
    """One file as the rank names it. sha256 is empty where it is missing."""

    path: str
    place: Place
    size_bytes: int = 0
    sha256: str = ""
    mode: int = 0o600


def add_files(
    writer: CapsuleWriter,
    paths: Iterable[str],
    *,
    small_bytes: int = SMALL_FILE_BYTES,
    inside_bytes: int = INSIDE_BYTES,
    homes: tuple[str, ...] = (),
    as_read: Mapping[str, Path] = MappingProxyType({}),
    always: Collection[str] = (),
) -> tuple[RankFile, ...]:
    """Puts the files at `paths` into the capsule, and the index of them. Call it once. Of more than `inside_bytes` the
    smaller ones are inside, of what is neither Python source nor in `always`. `homes`: folders whose private dotfiles
    stay out. `as_read`: by path, a copy from before the program wrote to the file, which is nowhere else."""
    wanted = [(path, as_read.get(path, Path(path))) for path in sorted(set(paths))]
    data = {path for path, _ in wanted if not path.endswith(".py") and path not in as_read and path not in always}
    largest = _largest_inside((content for path, content in wanted if path in data), small_bytes, inside_bytes)
    files = tuple(
        _add(writer, path, content, largest if path in data else small_bytes, homes) for path, content in wanted
    )
    add_index(writer, files)
    return files


def _largest_inside(contents: Iterable[Path], small_bytes: int, inside_bytes: int) -> int:
    """Size in bytes up to which files are inside."""
    sizes = sorted(size for content in contents if (size := _size_of(content)) <= small_bytes)
    for size, in_all in zip(sizes, accumulate(sizes), strict=True):
        if in_all > inside_bytes:
            return size - 1
    return small_bytes


def _size_of(content: Path) -> int:
    try:
        return content.stat().st_size
    except OSError:  # it is missing in the capsule, too
        return 0


def add_index(writer: CapsuleWriter, files: Iterable[RankFile]) -> None:
    entries = [
        {"path": f.path, "place": f.place, "size_bytes": f.size_bytes, "sha256": f.sha256, "mode": f.mode}
        for f in files
    ]
    writer.add_json(layout.FILES_INDEX, {"files": entries})


def read_files(capsule: Capsule) -> tuple[RankFile, ...]:
    """The index; empty where the capsule has none. `CapsuleError` where it is damaged."""
    if layout.FILES_INDEX not in capsule.manifest.files:
        return ()
    index = checked_json.read(capsule.path / layout.FILES_INDEX)
    entries = index.objects("files")
    if len(entries) > MAX_FILES:
        index.fail("files", f"contains {len(entries):,} entries; the limit is {MAX_FILES:,}")
    files = tuple(_read(entry, capsule) for entry in entries)
    if len({file.path for file in files}) != len(files):
        index.fail("files", "names a path twice")
    return files


def content_path(capsule: Capsule, file: RankFile) -> Path:
    """Where the bytes of a file that is INSIDE lie."""
    return capsule.exact_path / layout.content(file.sha256)


def read_content(capsule: Capsule, file: RankFile) -> bytes:
    """Of a file that is INSIDE, which the capsule need not be verified for. `OSError` where it is a link or a special
    file, or not as large as the capsule says: the caller bounds that."""
    with transfer.open_plain(content_path(capsule, file)) as content:
        if os.fstat(content.fileno()).st_size != file.size_bytes:
            raise OSError(errno.EINVAL, "its size has changed", content.name)
        return content.read(file.size_bytes)


def read_text(capsule: Capsule, file: RankFile) -> str:
    """As `read_content`, with what is no UTF-8 replaced and every end of a line a line feed."""
    return io.StringIO(read_content(capsule, file).decode(errors="replace"), newline=None).read()


def changed(file: RankFile) -> str:
    """Why a BOUND or REDACTED file cannot be bound on this machine; empty where it can."""
    try:
        find(file)
    except CapsuleError as error:
        return str(error)
    return ""


def find(file: RankFile) -> Known:
    """The BOUND or REDACTED file on this machine. `CapsuleError` where it is missing or not the same."""
    real = os.path.realpath(file.path)
    if file.place is Place.BOUND and is_credential(real):
        raise CapsuleError(f"{file.path} points to a file with credentials")
    try:
        with open_real(real) as content:
            status = os.fstat(content.fileno())
            if status.st_size != file.size_bytes:
                raise CapsuleError(f"{file.path} has {status.st_size} bytes; at the capture it had {file.size_bytes}")
            if problem := transfer.nearly_empty(status):
                raise CapsuleError(f"{file.path} {problem}")
            if _hashed(content, status.st_size) == file.sha256:
                return known_of(content, real)
    except FileNotFoundError:
        raise CapsuleError(f"{file.path} does not exist on this machine") from None
    except OSError as error:
        raise CapsuleError(f"{file.path} cannot be read: {error.strerror}") from None
    raise CapsuleError(f"{file.path} has changed since the capture")


class _Rewritten(Exception):
    """While it was copied."""


def _add(writer: CapsuleWriter, path: str, content: Path, small_bytes: int, homes: tuple[str, ...]) -> RankFile:
    """A job may write its files at any time, and an incident has this one capsule: one file must not cost it."""
    for _ in range(TRIES):
        with suppress(_Rewritten):
            return _added(writer, path, content, small_bytes, homes)
    return RankFile(path=path, place=Place.MISSING)


def _added(writer: CapsuleWriter, path: str, content: Path, small_bytes: int, homes: tuple[str, ...]) -> RankFile:
    try:
        source = content.resolve(strict=True)  # the rank's name may be a link; its content is what counts
        mode = source.stat().st_mode & 0o777
        entry = _identified(source)
        names = {path, os.path.realpath(path), str(source)}
        if _is_secret(names, source, mode, entry.size_bytes, homes):
            place = Place.REDACTED
        elif entry.size_bytes > small_bytes:
            place = Place.BOUND
        else:
            place = Place.INSIDE
            _copy(writer, layout.content(entry.sha256), source, entry)
    except OSError:
        return RankFile(path=path, place=Place.MISSING)
    return RankFile(path=path, place=place, size_bytes=entry.size_bytes, sha256=entry.sha256, mode=mode)


def _identified(source: Path) -> FileEntry:
    if source.stat().st_size <= WHOLE_BYTES:
        return transfer.hash_file(source)
    with transfer.open_plain(source) as content:
        return transfer.hash_parts(content, os.fstat(content.fileno()).st_size)


def _hashed(content: BinaryIO, size_bytes: int) -> str:
    """As `_identified` does."""
    is_whole = size_bytes <= WHOLE_BYTES
    return (transfer.hash_content(content) if is_whole else transfer.hash_parts(content, size_bytes)).sha256


def _copy(writer: CapsuleWriter, name: str, source: Path, entry: FileEntry) -> None:
    """As it was when it was hashed: of one that has grown since, as a job's log does, the beginning."""
    if writer.holds(name):
        return
    copied = writer.add_file(name, source)
    if copied.size_bytes > entry.size_bytes:
        copied = writer.edit(name, lambda data: data[: entry.size_bytes])
    if copied != entry:
        writer.drop(name)
        raise _Rewritten


def _is_secret(names: Iterable[str], source: Path, mode: int, size_bytes: int, homes: tuple[str, ...]) -> bool:
    if any(is_credential(name) or is_private(name, mode, size_bytes, homes) for name in names):
        return True
    with transfer.open_plain(source) as file:
        return holds_a_key(file.read(200))


def _read(entry: checked_json.Fields, capsule: Capsule) -> RankFile:
    path, place = entry.text("path"), entry.text("place")
    if not rank_path.is_plain(path):
        entry.fail("path", f"is {path[:80]!r}, not a plain absolute path")
    if place != Place.MISSING and (reason := rank_path.problem(path)):
        entry.fail("path", f"is {path[:80]!r}, which {reason}")
    if place == Place.BOUND and is_credential(path):
        entry.fail("path", f"is {path[:80]!r}, a file with credentials, but is not marked as redacted")
    if place not in tuple(Place):
        entry.fail("place", f"is {place[:40]!r}")
    if place == Place.MISSING:
        return RankFile(path=path, place=Place.MISSING)
    file = RankFile(
        path=path,
        place=Place(place),
        size_bytes=entry.integer("size_bytes"),
        sha256=entry.sha256("sha256"),
        mode=entry.integer("mode", most=0o777),
    )
    if file.place is Place.INSIDE:
        content = capsule.manifest.files.get(layout.content(file.sha256))
        if content is None:
            entry.fail("sha256", f"of {path} refers to content that the capsule does not contain")
        if content.size_bytes != file.size_bytes:
            entry.fail("size_bytes", f"of {path} is {file.size_bytes}, but its content has {content.size_bytes}")
    return file
