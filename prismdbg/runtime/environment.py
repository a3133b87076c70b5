"""The installed files a rank runs on (interpreter, libraries, packages): a list that says when two are the same.

Holds no content. Found by `environment_scan`, turned into a container's image by `image`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from prismdbg.capsule import checked_json, rank_path
from prismdbg.capsule.checked_json import Count, Fields, Word
from prismdbg.capsule.limits import MAX_INSTALLED_FILES
from prismdbg.errors import FacilityError

_SAID_AT_MOST = 3
_USUAL = ((str, int, int, int), (str, int, int, int, str))


@dataclass(frozen=True, slots=True)
class InstalledFile:
    """A regular file, or a symbolic link with its `target`. Times do not count for links."""

    path: str
    mode: int
    size_bytes: int = 0
    mtime_ns: int = 0
    target: str = ""

    @classmethod
    def at(cls, path: str) -> InstalledFile | None:
        """None for what is neither, or is not there."""
        try:
            status = os.lstat(path)  # a `Path` costs more than the call, and there are tens of thousands
            if stat.S_ISLNK(status.st_mode):
                return cls(path, 0o777, target=str(Path(path).readlink()))
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return cls(path, stat.S_IMODE(status.st_mode), status.st_size, status.st_mtime_ns)


@dataclass(frozen=True)
class Environment:
    """Sorted by path. Byte code is not listed: it changes by being used, and adds nothing.

    extra: paths among them that one rank had mapped from elsewhere than the interpreter's folders. Without these
    it is the environment of every rank that runs on the same installation.
    """

    files: tuple[InstalledFile, ...]
    extra: frozenset[str] = frozenset()

    @cached_property
    def key(self) -> str:
        """The same files give the same key; an image made from them is made once."""
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(
                f"{file.path}\0{file.mode}\0{file.size_bytes}\0{file.mtime_ns}\0{file.target}\n".encode(
                    "utf-8", "surrogateescape"
                )
            )
        return digest.hexdigest()[:32]

    def parts(self) -> tuple[Environment, Environment]:
        """What is common to all ranks of the installation, and the extra files."""
        common = (file for file in self.files if file.path not in self.extra)
        return of_files(common), of_files(file for file in self.files if file.path in self.extra)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @cached_property
    def folders(self) -> frozenset[str]:
        """Every folder that exists where these files do."""
        found = {"/"}
        for folder in {file.path.rpartition("/")[0] for file in self.files}:
            while folder and folder not in found:
                found.add(folder)
                folder = folder.rpartition("/")[0]
        return frozenset(found)

    def check_unchanged(self) -> None:
        """`FacilityError` naming what is missing or not as it was."""
        changed = [reason for file in self.files if (reason := _change(file))]
        if changed:
            more = f", and {len(changed) - _SAID_AT_MOST} more" if len(changed) > _SAID_AT_MOST else ""
            raise FacilityError(
                f"the installed files have changed since the capture: {'; '.join(changed[:_SAID_AT_MOST])}{more}",
                hint="install the same versions again, or build the container image on the machine of the capture",
            )

    def to_json(self) -> dict[str, Any]:
        """By folder, for most paths begin alike."""
        folders: dict[str, list[list[Any]]] = {}
        for file in self.files:
            folder, _, name = file.path.rpartition("/")
            entry = [name, file.mode, file.size_bytes, file.mtime_ns]
            folders.setdefault(folder, []).append([*entry, file.target] if file.target else entry)
        return {"format": 1, "key": self.key, "folders": folders, "extra": sorted(self.extra)}

    @classmethod
    def from_json(cls, fields: Fields) -> Environment:
        """`CapsuleError` for anything but what `to_json` gives."""
        folders = fields.checked("folders", dict[Word, list[Any]])
        if (listed := sum(map(len, folders.values()))) > MAX_INSTALLED_FILES:
            fields.fail("folders", f"list {listed:,} files; the limit is {MAX_INSTALLED_FILES:,}")
        files = [file for folder, entries in folders.items() for file in _read(fields, folder, entries)]
        if len({file.path for file in files}) < len(files):
            fields.fail("folders", "contain a file twice")
        return of_files(files, extra=fields.texts("extra") if fields.has("extra") else ())


def _read(fields: Fields, folder: str, entries: list[Any]) -> Iterator[InstalledFile]:
    """name, mode, size, time, and of a link where it leads. There are tens of thousands: what is as ever is told at
    once, and looked at in detail only where it is not."""
    for entry in entries:
        if not _is_usual(folder, entry):
            _check(fields, folder, entry)
        name, *others = entry
        yield InstalledFile(f"{folder}/{name}", *others)


def _is_usual(folder: str, entry: Any) -> bool:
    if type(entry) is not list or tuple(map(type, entry)) not in _USUAL:
        return False
    name, mode, size_bytes, mtime_ns, *target = entry
    return (
        rank_path.is_usual(folder, name)
        and 0 <= mode <= 0o7777
        and 0 <= size_bytes < 1 << 63
        and -1 << 63 < mtime_ns < 1 << 63
        and all(text.isascii() and "\0" not in text for text in target)
    )


def _check(fields: Fields, folder: str, entry: Any) -> None:
    kinds = (Word, Count, Count, int, Word)
    if not isinstance(entry, list):
        fields.fail("folders", f"contain an invalid entry in {folder[:80]!r}")
    if not 4 <= len(entry) <= len(kinds):
        fields.fail("folders", f"contain an entry of {len(entry)} values in {folder[:80]!r}")
    for kind, value in zip(kinds, entry, strict=False):
        checked_json.checked(kind, value, f"{fields.where}: folders: {folder[:80]!r}")
    name, mode = entry[:2]
    path = f"{folder}/{name}"
    if "/" in name or mode > 0o7777:
        fields.fail("folders", f"contain {path[:80]!r}, which is not a plain absolute path with permissions")
    if reason := rank_path.problem(path):
        fields.fail("folders", f"contain {path[:80]!r}, which {reason}")


def of_files(files: Iterable[InstalledFile], *, extra: Iterable[str] = ()) -> Environment:
    return Environment(tuple(sorted(files, key=attrgetter("path"))), frozenset(extra))


def _change(file: InstalledFile) -> str:
    now = InstalledFile.at(file.path)
    if now is None:
        return f"{file.path} is missing"
    if now == file:
        return ""
    if now.target != file.target:
        return f"{file.path} is a different link"
    if now.size_bytes != file.size_bytes:
        return f"{file.path} has {now.size_bytes} bytes; at the capture it had {file.size_bytes}"
    return f"{file.path} was modified"
