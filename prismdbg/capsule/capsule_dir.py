"""A capsule as a folder: written under a temporary name and renamed when whole, and opened again.

Opening reads the manifest and trusts the rest; `verify` does not. Packed ones: `prismdbg.jobs.storage.pack`.
"""

from __future__ import annotations

import errno
import stat
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import TracebackType

from prismdbg.capsule import checked_json, container_dump, layout, transfer
from prismdbg.capsule.checked_json import Fields
from prismdbg.capsule.exact_file import Known
from prismdbg.capsule.limits import MAX_MANIFEST_BYTES
from prismdbg.capsule.manifest import FileEntry, Manifest
from prismdbg.capsule.partial import already_exists, partial_folder, publish
from prismdbg.capsule.rank_json import RankJson, read_rank, startable
from prismdbg.capsule.transfer import Transfer, sync, sync_tree
from prismdbg.errors import CapsuleError, FacilityError
from prismdbg.model.meanwhile import Tell, by_bytes, unheard, working
from prismdbg.model.plain_text import one_line

MOST_NAMED = 8  # of the capsules beside one that is not there
MOST_LOOKED_AT = 1000


class CapsuleWriter:
    """Writes one capsule; nothing is left of it unless `finish` was reached.

    with CapsuleWriter(path) as writer:
        writer.add_json(layout.RANK, rank)
        writer.add_tree(layout.LOG, run_log)
        writer.finish(manifest)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, FileEntry] = {}
        self._argv: list[str] = []
        self._cwd = "/"
        self._cleanup = ExitStack()
        self.tell: Tell = unheard  # how far long work on the capsule is
        self._read = by_bytes(unheard, "")

    def __enter__(self) -> CapsuleWriter:
        if self.path.exists() or self.path.is_symlink():
            raise already_exists(self.path)
        self._partial = self._cleanup.enter_context(partial_folder(self.path))
        for folder in layout.FOLDERS:
            (self._partial / folder).mkdir(mode=0o700)
        self.tell = self._cleanup.enter_context(working())
        self._read = by_bytes(self.tell, "writing the capsule")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise FacilityError(
                f"the disk is full: {self.path} could not be written", hint="free some space, or write it elsewhere"
            ) from error

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self._entries.values())

    def add_bytes(self, name: str, data: bytes) -> FileEntry:
        return self._enter(name, transfer.write_new(self._target(name), data))

    def add_json(self, name: str, value: object) -> FileEntry:
        if name == layout.RANK and isinstance(value, dict):
            self._argv, self._cwd = (
                list(value.get("orig_argv") or value.get("argv", [])),
                str(value.get("cwd", "/")),
            )
        return self.add_bytes(name, checked_json.dumps(value))

    def add_file(self, name: str, source: Path, how: Transfer = Transfer.COPY) -> FileEntry:
        return self._enter(name, transfer.bring(source, self._target(name), how, self._read))

    def add_parts(self, name: str, source: Path, parts: Iterable[tuple[int, int]]) -> FileEntry:
        """A copy of the file with zeros for all but `parts`, each from its first to before its last byte."""
        return self._enter(name, transfer.bring_parts(source, self._target(name), parts, self._read))

    def add_masked(self, name: str, source: Path, parts: Iterable[tuple[int, int]]) -> FileEntry:
        """A copy of the file, of any size, with asterisks for `parts`, each from its first to before its last byte."""
        return self._enter(name, transfer.bring_masked(source, self._target(name), parts, b"*"))

    def edit(self, name: str, edit: Callable[[bytes], bytes]) -> FileEntry:
        """Makes of a part that was added, and fits into memory, what `edit` makes of it."""
        target = self._partial / name
        data = edit(target.read_bytes())
        target.unlink()
        return self._write(name, target, data)

    def drop(self, name: str) -> None:
        """Takes back a part that was added."""
        del self._entries[name]
        (self._partial / name).unlink()

    def _write(self, name: str, target: Path, data: bytes) -> FileEntry:
        with transfer.create(target) as out:
            for start in range(0, len(data), transfer.CHUNK_BYTES):
                transfer.write_sparse(out, data[start : start + transfer.CHUNK_BYTES])
            out.truncate(len(data))
        return self._enter(name, transfer.hash_file(target))

    def add_tree(self, name: str, source: Path, how: Transfer = Transfer.COPY) -> None:
        """Every file below `source`. Sockets are passed over; links and devices are refused."""
        for path in sorted(source.rglob("*")):
            if not path.is_symlink() and (path.is_dir() or path.is_socket()):
                continue
            self.add_file(f"{name}/{path.relative_to(source).as_posix()}", path, how)

    def add_checkpoint(self, images: Path, how: Transfer = Transfer.COPY) -> None:
        """The engine's image folder. Its statistics go to the root, where podman has them."""
        for path in sorted(images.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                continue
            inside = path.relative_to(images).as_posix()
            name = layout.STATS_DUMP if inside == layout.STATS_DUMP else f"{layout.CHECKPOINT}/{inside}"
            self.add_file(name, path, how)

    @property
    def folder(self) -> Path:
        """What was added so far."""
        return self._partial

    def holds(self, name: str) -> bool:
        return name in self._entries

    def finish(self, manifest: Manifest, names: Iterable[Path] = ()) -> Capsule:
        """Writes what describes the rest, makes all durable, gives it its name: now the capsule exists. `UsageError`
        where another process was faster. `names`: in place of its own; it gets the first one that is free."""
        if layout.RANK not in self._entries:
            raise CapsuleError(f"{self.path}: {layout.RANK} was not added, the capsule would be incomplete")
        self.add_json(layout.CONFIG_DUMP, container_dump.config(manifest))
        self.add_json(layout.SPEC_DUMP, container_dump.spec(manifest, self._argv, self._cwd))
        whole = replace(manifest, files=dict(self._entries))
        data = whole.to_bytes()
        parsed = Manifest.from_bytes(data)  # what this program could not read again must not be written
        transfer.write_new(self._partial / layout.MANIFEST, data)
        sync_tree(self._partial)
        path = next((path for path in names or (self.path,) if publish(self._partial, path)), None)
        if path is None:
            raise already_exists(self.path)
        sync(path.parent)
        return Capsule(path=path, manifest=parsed)

    def _target(self, name: str) -> Path:
        layout.check_file_name(name)
        if name in self._entries or name == layout.MANIFEST:
            raise CapsuleError(f"{self.path}: {name} was added already")
        target = self._partial / name
        for parent in reversed(target.relative_to(self._partial).parents):
            (self._partial / parent).mkdir(mode=0o700, exist_ok=True)
        return target

    def _enter(self, name: str, entry: FileEntry) -> FileEntry:
        self._entries[name] = entry
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Capsule:
    """An opened capsule. Only its manifest was read.

    folder: the one that was verified, before anything in it is run; others may be able to put another one at `path`.
    """

    path: Path
    manifest: Manifest
    folder: Known | None = None

    @classmethod
    def open(cls, path: Path) -> Capsule:
        """`CapsuleError` where `path` is no capsule, is damaged, or needs a newer prismdbg."""
        if not path.is_dir():
            what = f"{path} is not a folder" if path.exists() else f"no such file or directory: {path}"
            beside = "" if path.exists() else _capsules_in(path.parent)
            raise CapsuleError(what, hint=beside or "give a capsule: a folder, or a file written by `prismdbg pack`")
        file = path / layout.MANIFEST
        if not file.is_symlink() and not file.exists():
            raise CapsuleError(
                f"{path} is not a capsule: it contains no {layout.MANIFEST}",
                hint="run `prismdbg list` to see what exists",
            )
        data = checked_json.read_bytes(file, limit_bytes=MAX_MANIFEST_BYTES)
        return cls(path=path, manifest=Manifest.from_bytes(data, str(file)))

    @property
    def exact_path(self) -> Path:
        """Without a link in it, where it was verified."""
        return self.path if self.folder is None else Path(self.folder.path)

    @property
    def log(self) -> Path:
        """The folder for `log/reader.py`."""
        return self.path / layout.LOG

    @property
    def checkpoint(self) -> Path:
        """The engine's images; an empty folder where the origin is the program's start."""
        return self.path / layout.CHECKPOINT

    def rank(self) -> RankJson:
        """What the rank said of itself."""
        rank = read_rank(self.path / layout.RANK)
        return startable(rank, str(self.path / layout.RANK)) if self.manifest.origin.starts_program else rank

    def faults_below(self, folder: str) -> list[str]:
        """A sentence on each file in `folder` that the manifest names and that is missing, or no regular file."""
        names = sorted(name for name in self.manifest.files if name.startswith(f"{folder}/"))
        return [f"{name} {fault}" for name in names if (fault := _fault(self.path / name))]

    def part(self, name: str) -> Fields | None:
        """The JSON object in an optional part, None where the capsule has none."""
        if name not in self.manifest.files:
            return None
        return checked_json.read(self.path / layout.check_file_name(name))


def _fault(path: Path) -> str:
    try:
        return "" if stat.S_ISREG(path.lstat().st_mode) else "is not a regular file"
    except OSError as error:
        return "is missing" if error.errno == errno.ENOENT else f"cannot be read: {error.strerror}"


def _capsules_in(folder: Path) -> str:
    """A hint that names capsules that are there, in place of one that is not."""
    try:
        names = sorted(
            entry.name for entry in islice(folder.iterdir(), MOST_LOOKED_AT) if (entry / layout.MANIFEST).exists()
        )
    except OSError:
        return ""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"give one of the capsules in {folder}: {', '.join(map(one_line, names[:MOST_NAMED]))}{more}" if names else ""
    )
