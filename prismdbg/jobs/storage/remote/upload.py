"""Folders and files put into an object store. The files of a folder lie there one by one before it is complete: a mark
says so from the first one on, and with it what they will be. Who uploads the same again goes on from there.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.capsule.checked_json import Word
from prismdbg.capsule.transfer import hash_file
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs.storage.inner_links import leads_inside
from prismdbg.jobs.storage.remote.object_store import LISTED, UPLOAD, Address, FileJson, store
from prismdbg.model.meanwhile import by_bytes, working
from prismdbg.model.plurals import counted
from prismdbg.model.sizes import size

Say = Callable[[str], None]


class UploadJson(TypedDict):
    token: Word
    files: dict[str, FileJson]


def push(source: Path, address: Address, say: Say) -> None:
    """Writes a file or folder there. `UsageError` where something is there already: nothing is overwritten, but for an
    upload of a folder that was interrupted."""
    with store(address) as (system, root):
        require_free(address, is_file=source.is_file())
        if source.is_file():
            say(f"writing {address.text}: {size(source.stat().st_size)}")
            _put_file(system, source, root)
            return
        with working() as tell:
            folder = _Folder.read(source, by_bytes(tell, f"reading {source.name}", _size_bytes(source)))
        kept = _kept(address, system, root, folder.files)
        if kept is not None:
            say(f"continuing the upload of {address.text}: {counted(len(kept), 'file')} are there")
        say(f"writing {address.text}: {counted(len(folder.files), 'file')}, {size(folder.size_bytes)}")
        token = secrets.token_hex(16)
        _put_json(system, f"{root}/{UPLOAD}", {"token": token, "files": folder.files})
        with working() as tell:
            folder.put(system, root, kept or (), by_bytes(tell, f"writing {address.text}", folder.size_bytes))
        if (mark := _mark(address, system, root)) is None or mark["token"] != token:
            raise UsageError(f"another upload to {address.text} has begun meanwhile", hint="wait for its end")
        _put_json(system, f"{root}/{LISTED}", {"files": folder.files, "links": folder.links})
        with suppress(Exception):  # who may not remove anything there leaves it; with the list it says nothing
            system.rm_file(f"{root}/{UPLOAD}")


def require_free(address: Address, *, is_file: bool = False) -> None:
    """`UsageError` where something is there that no upload left behind: of a folder, for a folder."""
    with store(address) as (system, root):
        if system.exists(root) and (is_file or _mark(address, system, root) is None):
            raise _exists(address)


def _exists(address: Address) -> UsageError:
    return UsageError(f"{address.text} already exists", hint="choose a new address")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folder:
    """What an upload writes. `files`: as they were when they were read; `stamps`: their sizes and times then; links:
    those that lead to another place in it."""

    home: Path
    files: dict[str, FileJson]
    stamps: Mapping[str, tuple[int, int]]
    links: Mapping[str, str]

    @classmethod
    def read(cls, home: Path, read: Callable[[int], None]) -> _Folder:
        files: dict[str, FileJson] = {}
        stamps, links = {}, {}
        for path in sorted(home.rglob("*")):
            name = path.relative_to(home).as_posix()
            if path.is_symlink():
                if leads_inside(path, home) and _has_content(path):
                    links[name] = str(path.readlink())
            elif path.is_file() and name not in (UPLOAD, LISTED):  # of a copy that was fetched by other means
                stamps[name] = _stamp(path)
                entry = hash_file(path, read)
                time_ns = max(stamps[name][1], 0)
                files[name] = {"size": entry.size_bytes, "sha256": entry.sha256, "mtime_ns": time_ns}
        return cls(home=home, files=files, stamps=stamps, links=links)

    @property
    def size_bytes(self) -> int:
        return sum(about["size"] for about in self.files.values())

    def put(self, system: Any, root: str, kept: Collection[str], written: Callable[[int], None]) -> None:
        for name, about in self.files.items():
            path = self.home / name
            if name not in kept:
                _put(system, path, f"{root}/{name}")
            if _stamp(path) != self.stamps[name]:
                raise CapsuleError(
                    f"{path} changed while it was uploaded", hint="give the same command again when the job has ended"
                )
            written(about["size"])


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _has_content(path: Path) -> bool:
    """A store has no empty folders: a link to one would lead nowhere."""
    return path.is_file() or any(below.is_file() for below in path.rglob("*"))


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _kept(address: Address, system: Any, root: str, files: Mapping[str, FileJson]) -> frozenset[str] | None:
    """Of an upload that was interrupted what is there as it will be; None where nothing is. The rest of it goes before
    the next mark is written: with that one it would count as there."""
    if not system.exists(root):
        return None
    if (mark := _mark(address, system, root)) is None:
        raise _exists(address)
    there = {path.removeprefix(root).lstrip("/"): about for path, about in system.find(root, detail=True).items()}
    there.pop(UPLOAD, None)
    if foreign := sorted(there.keys() - mark["files"].keys()):
        raise UsageError(
            f"{address.text} already exists: {foreign[0]} is of no interrupted upload", hint="choose a new address"
        )
    kept = frozenset(
        name
        for name, about in there.items()
        if name in files
        and files[name]["sha256"] == mark["files"][name]["sha256"]
        and about.get("size") == mark["files"][name]["size"]
    )
    for name in sorted(there.keys() - kept):
        system.rm_file(f"{root}/{name}")
    return kept


def _mark(address: Address, system: Any, root: str) -> UploadJson | None:
    """What an upload that is not complete said of itself; None where there is none."""
    place = f"{root}/{UPLOAD}"
    if not system.isfile(place) or system.isfile(f"{root}/{LISTED}"):
        return None
    where = f"{address.text}/{UPLOAD}"
    return checked_json.checked(UploadJson, checked_json.parse(system.cat_file(place), where).value, where)


def _put_json(system: Any, target: str, value: object) -> None:
    _made_parent(system, target)
    system.pipe_file(target, json.dumps(value).encode())


def _put(system: Any, source: Path, target: str) -> None:
    _made_parent(system, target)
    system.put_file(str(source), target)


def _put_file(system: Any, source: Path, target: str) -> None:
    """Whole or not at all, as object stores do it."""
    if "file" not in system.protocol:
        _put(system, source, target)
        return
    folder, _, name = target.rpartition("/")
    partial = f"{folder}/.{name}.upload"
    _put(system, source, partial)
    system.mv(partial, target)


def _made_parent(system: Any, target: str) -> None:
    if "file" in system.protocol:  # others have no folders, or make them
        system.makedirs(target.rpartition("/")[0], exist_ok=True)
