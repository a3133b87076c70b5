"""The names in folders that a rank listed: a program that chooses among files sees all of them in a replay, too."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prismdbg.capsule import rank_path
from prismdbg.capsule.limits import MAX_LISTED_NAMES
from prismdbg.capsule.log.events import Note, RankLog
from prismdbg.capsule.secrets.private_files import is_credential
from prismdbg.jobs.birth_time import birth_ns
from prismdbg.runtime.visible import SYSTEM, installation_of

_OTHERS = frozenset(("/", "/etc", "/home", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/tmp"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """`names`: files that the rank did not read. `left_out`: how many names are too many for a capsule."""

    names: tuple[str, ...]
    folders: tuple[str, ...]
    left_out: int

    @property
    def note(self) -> str:
        if not self.left_out:
            return ""
        return f"the program listed folders with too many entries for a capsule: a replay lacks {self.left_out} of them"


def listed(log: RankLog, read: tuple[str, ...], absent: tuple[str, ...], home: str) -> Listed:
    """`read`: files that the capsule has; `absent`: what the rank made itself later. Of a folder's files and folders
    those that were there when it was listed; nothing of installations and of folders that many programs use."""
    names: dict[str, None] = {}
    folders: dict[str, None] = {}
    known, later = set(read), set(map(Path, absent))
    for note in log.notes:
        path = rank_path.usual(str(note.data.get("path", ""))) if note.kind == "listed" else ""
        if not path or path == home or not _is_programs(path):
            continue
        folders[path] = None
        for entry in _entries(path):
            if rank_path.unfit(entry.path) or later & {Path(entry.path), *Path(entry.path).parents}:
                continue
            if _is_folder(entry):
                if birth_ns(entry.path) <= _listed_ns(note, log):  # else another rank, say, made it later
                    folders[entry.path] = None
            elif entry.path not in known and _was_there(entry, _listed_ns(note, log)) and not is_credential(entry.path):
                names[entry.path] = None
    kept, inner = sorted(names)[:MAX_LISTED_NAMES], sorted(folders)[:MAX_LISTED_NAMES]
    left_out = len(names) + len(folders) - len(kept) - len(inner)
    return Listed(names=tuple(kept), folders=tuple(inner), left_out=left_out)


def _listed_ns(note: Note, log: RankLog) -> int:
    seen = note.data.get("seen_ns")
    return (seen if isinstance(seen, int) else note.time_ns) + log.wall_offset_ns


def _is_programs(path: str) -> bool:
    real = os.path.realpath(path)
    if real in _OTHERS or rank_path.problem(real) or f"{real}/".startswith(tuple(f"{folder}/" for folder in SYSTEM)):
        return False
    try:
        is_shared = bool(Path(real).stat().st_mode & stat.S_ISVTX)
    except (OSError, ValueError):
        return False
    return not is_shared and not installation_of(f"{real}/x")


def _entries(path: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            yield from entries
    except OSError:  # gone since, or not ours to look at
        return


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _was_there(entry: os.DirEntry[str], then_ns: int) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
        is_file = stat.S_ISREG(status.st_mode) or (stat.S_ISLNK(status.st_mode) and entry.is_file())
    except OSError:
        return False
    return is_file and max(status.st_mtime_ns, status.st_ctime_ns) <= then_ns
