"""Folders and files in object stores, by address (`s3://bucket/run`), fetched into a cache folder.

What lies there is foreign: names, numbers and sizes are checked before anything is written here. `upload` puts a list
of sizes, digests and times beside the files, last: a folder without all that it lists is not complete, nor is one that
has the mark of an upload and no list.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, NotRequired, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.capsule.checked_json import Count, Word
from prismdbg.capsule.exact_file import open_real
from prismdbg.capsule.transfer import create, hash_file
from prismdbg.errors import CapsuleError, FacilityError, PrismError, UsageError
from prismdbg.jobs.storage.inner_links import is_below_link, leads_inside
from prismdbg.jobs.storage.remote.fetched_cache import cache_folder, fetching, is_whole, require_room
from prismdbg.model.meanwhile import by_bytes, working
from prismdbg.model.plurals import counted
from prismdbg.model.sizes import size

PROTOCOLS = ("s3", "gs", "az", "abfs", "memory", "file")
SIGNATURE_SUFFIX = ".sig"
MOST_FILES = 200_000
PART_BYTES = 64 << 20  # of one request
LISTED = ".prismdbg-files.json"
UPLOAD = ".prismdbg-upload.json"  # there from an upload's start to its end
_ADDRESS = re.compile(r"([a-z0-9]+)://(.*)", re.DOTALL)
_SAID = 300  # characters of what a store says

Say = Callable[[str], None]


def _is_sha256(text: str) -> str:
    return "" if re.fullmatch("[0-9a-f]{64}", text) else "is not a sha256 in hexadecimal"


class FileJson(TypedDict):
    size: Count
    sha256: Annotated[str, _is_sha256]
    mtime_ns: NotRequired[Count]  # older uploads have none


class ListedJson(TypedDict):
    files: dict[str, FileJson]
    links: dict[str, Word]


@dataclass(frozen=True, slots=True)
class Address:
    """One of an object store, as the user wrote it."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def name(self) -> str:
        return self.text.rstrip("/").rpartition("/")[2]

    @classmethod
    def of(cls, text: str) -> Address | None:
        """None where it is a path. `UsageError` where it is an address that is not read here."""
        if (match := _ADDRESS.fullmatch(text)) is None:
            return None
        if match[1] not in PROTOCOLS or not match[2].strip("/"):
            known = ", ".join(f"{name}://" for name in PROTOCOLS)
            raise UsageError(f"{text} is not a supported address", hint=f"give a path, or an address: {known}")
        return cls(text)


def fetch(address: Address, say: Say) -> Path:
    """A file or folder here, that has what is at the address now. `UsageError` where nothing is."""
    with store(address) as (system, root):
        is_file = system.isfile(root)
        there, links = _listing(address, system, root, is_file=is_file)
        target = cache_folder() / f"{_key(address, there, links)}" / address.name
        if is_whole(target):
            target.parent.touch()
            return target
        total = sum(size_bytes for size_bytes, _ in there.values())
        require_room(address.text, total)
        say(f"fetching {address.text}: {counted(len(there), 'file')}, {size(total)}")
        with fetching(target) as partial:
            with working() as tell:
                fetched = by_bytes(tell, f"fetching {address.text}", total)
                _download(system, root, there, partial / address.name, fetched, is_file=is_file)
            _verify(address, partial / address.name, is_file=is_file)
            _make_links(address, partial / address.name, links)
    return target


def _listing(
    address: Address, system: Any, root: str, *, is_file: bool
) -> tuple[dict[str, tuple[int, str]], dict[str, str]]:
    """By name the size, and what changes when the content does; and where links lead, which nobody has followed yet.
    A file's signature comes with it."""
    alone = (path for path in (root, f"{root}{SIGNATURE_SUFFIX}") if is_file and system.isfile(path))
    found = {path: system.info(path) for path in alone} if is_file else system.find(root, detail=True)
    if not found:
        raise UsageError(f"nothing is at {address.text}", hint="check the address, and your credentials for it")
    marks = {f"{root}/{name}" for name in (UPLOAD, LISTED)} & found.keys()
    if marks == {f"{root}/{UPLOAD}"}:
        raise CapsuleError(
            f"{address.text} is not complete: its upload was interrupted, or has not ended",
            hint="wait for its end, or give the same `prismdbg gather` again: it continues the upload",
        )
    found = {path: about for path, about in found.items() if path != f"{root}/{UPLOAD}"}
    if len(found) > MOST_FILES:
        raise CapsuleError(f"{address.text} has more than {MOST_FILES:,} files", hint="give the address of one RUN")
    there: dict[str, tuple[int, str]] = {}
    links: dict[str, str] = {}
    for path, about in found.items():
        name = path.rpartition("/")[2] if is_file else path.removeprefix(root).lstrip("/")
        _require_plain(address, name)
        if not is_file and (to := _relative_link(system, about)):
            links[name] = to
            continue
        if not is_file and (about.get("islink") or about.get("type", "file") != "file"):
            raise CapsuleError(
                f"{address.text}: {name} is not a regular file",
                hint="give a path of this machine, or fetch it by other means",
            )
        tag = about.get("ETag") or about.get("etag") or about.get("mtime") or about.get("created") or ""
        there[name] = int(about.get("size") or 0), str(tag)
    return there, links


def _relative_link(system: Any, about: Mapping[str, Any]) -> str:
    """Where it leads, as that of a RUN on a file system to a rank's trace; "" where it is none."""
    to = str(about.get("destination", "")) if "file" in system.protocol and about.get("islink") else ""
    return "" if to.startswith("/") else to


def _require_plain(address: Address, name: str) -> None:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name or str(PurePosixPath(name)) != name:
        raise CapsuleError(f"{address.text} contains a file of the name {name[:80]!r}", hint="fetch it by other means")


def _key(address: Address, there: Mapping[str, tuple[int, str]], links: Mapping[str, str]) -> str:
    told = json.dumps([address.text.rstrip("/"), sorted(there.items()), sorted(links.items())])
    return hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _download(
    system: Any,
    root: str,
    there: Mapping[str, tuple[int, str]],
    target: Path,
    fetched: Callable[[int], None],
    *,
    is_file: bool,
) -> None:
    """Of each file no more than one byte beyond its listed size: another one may be there by now."""
    source = root.rpartition("/")[0] if is_file else root
    source = os.path.realpath(source) if "file" in system.protocol else source
    for name, (size_bytes, _) in there.items():
        path = target.with_name(name) if is_file else target / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with create(path) as out:
            for start in range(0, size_bytes, PART_BYTES):
                stop = start + PART_BYTES if start + PART_BYTES < size_bytes else size_bytes + 1
                out.write(_part(system, f"{source}/{name}", start, stop))
            if out.tell() != size_bytes:
                raise CapsuleError(f"{name} changed while it was fetched", hint="try again after the upload has ended")
        fetched(size_bytes)


def _part(system: Any, path: str, start: int, stop: int) -> bytes:
    """Fewer bytes at the end of the file."""
    if "file" not in system.protocol:
        return bytes(system.cat_file(path, start=start, end=stop))
    with open_real(path) as file:  # somebody may have put a link there since it was listed
        file.seek(start)
        return file.read(stop - start)


def _verify(address: Address, target: Path, *, is_file: bool) -> None:
    """By the list that `push` wrote, with the times that it has; what others put there has none."""
    if is_file or not (target / LISTED).exists():
        return
    data = checked_json.read(target / LISTED).value
    listed = checked_json.checked(ListedJson, data, f"{address.text}/{LISTED}")
    for name, about in listed["files"].items():
        _require_plain(address, name)
        path = target / name
        if not path.is_file() or hash_file(path).sha256 != about["sha256"]:
            raise CapsuleError(
                f"{address.text}/{name} is missing, or not what was written there",
                hint="write it again: it is not complete, or was altered",
            )
        if (written_ns := about.get("mtime_ns")) is not None:
            os.utime(path, ns=(written_ns, written_ns))  # it tells how old a heartbeat is
    _make_links(address, target, listed["links"])
    (target / LISTED).unlink()


def _make_links(address: Address, target: Path, links: Mapping[str, str]) -> None:
    """All of them first: one may lead out of the folder through another one."""
    for name, to in links.items():
        _require_plain(address, name)
        link = target / name
        if is_below_link(link, target) or "\0" in to:
            raise _leads_out(address, name)
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        link.symlink_to(to)
    for name in links:
        if not leads_inside(target / name, target):
            raise _leads_out(address, name)


def _leads_out(address: Address, name: str) -> CapsuleError:
    return CapsuleError(f"{address.text}: {name} leads out of it, or nowhere", hint="fetch it by other means")


@contextmanager
def store(address: Address) -> Iterator[tuple[Any, str]]:
    """The file system of fsspec, and the path in it. What it raises becomes an error of ours."""
    try:
        import fsspec

        system, root = fsspec.core.url_to_fs(address.text, use_listings_cache=False)
    except ImportError as error:
        raise FacilityError(
            f"{address.text} needs a package that is not installed: {error}",
            hint="pip install 'prismdbg[remote]', or the package that the message names",
        ) from error
    try:
        yield system, root.rstrip("/")
    except PrismError:
        raise
    except FileNotFoundError as error:
        raise UsageError(
            f"nothing is at {address.text}", hint="check the address, and your credentials for it"
        ) from error
    except Exception as error:
        said = str(error)[:_SAID] or type(error).__name__
        raise FacilityError(
            f"{address.text} cannot be reached: {said}", hint="check network and credentials"
        ) from error
