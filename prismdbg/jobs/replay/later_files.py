"""Files of this machine that were made or changed after the moment at which a replay begins: hidden from the rank.

What native code or another process writes is in no log, so the folders that the program knows are looked through.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePath
from typing import NamedTuple

from prismdbg.capsule import path_kind
from prismdbg.capsule.limits import MAX_COMPONENTS
from prismdbg.capsule.rank_path import problem, unfit
from prismdbg.jobs.birth_time import birth_ns
from prismdbg.session.causes import Unhidden
from prismdbg.settings import file_system

MOST_UNDATED = 100  # of which a few are named
MOST_ENTRIES = 50_000  # of all folders together: a place to work in may hold a whole data set
LEFT_OUT = frozenset(
    (
        ".git",
        "__pycache__",
        "node_modules",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".import_linter_cache",
        ".hypothesis",
    )
)


class LaterFiles(NamedTuple):
    """`paths` are hidden; of what is `unhidden` it is not known whether it is younger."""

    paths: tuple[str, ...]
    unhidden: Unhidden


@dataclass(slots=True, kw_only=True)
class _Search:
    """`known`: paths that are as they were, or are laid as they were. `cut`: folders not read to their end. `undated`:
    made since, with an older time of modification. `shared`: those of the folders in which every user may write, as in
    /tmp: what lies deeper there is other programs', unless one of `own` is around it. `kernels`: where
    the kernel's own file systems lie, below a folder, too."""

    since_ns: int
    known: set[str]
    shared: frozenset[str]
    own: frozenset[str]
    left_out: tuple[str, ...]
    kernels: frozenset[str]
    left: int
    found: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    cut: list[str] = field(default_factory=list)
    undated: list[str] = field(default_factory=list)

    def folder(self, path: str) -> bool:
        """Whether everything in it is later, and there is something; then it stands for what is in it."""
        if path in self.seen or path in self.left_out or path.count("/") > MAX_COMPONENTS or _is_kernels(path):
            return False
        if path in self.kernels:
            return False
        self.seen.add(path)
        first, all_later, is_empty = len(self.found), True, True
        for entry in self._entries(path):
            is_empty = False
            all_later &= self._entry(entry)
        if is_empty or not all_later or path in self.known or path in self.cut:
            return False
        self.found[first:] = [path]
        return True

    def _entries(self, path: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(path) as entries:
                found = sorted(islice(entries, self.left), key=_name)
                if next(entries, None) is not None:
                    self.cut.append(path)
        except OSError:  # gone, or not ours to look at
            return []
        self.left -= len(found)
        return found

    def _entry(self, entry: os.DirEntry[str]) -> bool:
        try:
            if entry.is_dir(follow_symlinks=False):
                return self._run(entry.path) if _is_run(entry) else not _is_left_out(entry) and self.folder(entry.path)
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return False
        if max(status.st_mtime_ns, status.st_ctime_ns) <= self.since_ns or entry.path in self.known:
            return False
        if status.st_mtime_ns <= self.since_ns:
            self._undated(entry.path)
            return False
        self.found.append(entry.path)
        return True

    def _run(self, path: str) -> bool:
        """Folders of recordings have tens of thousands of files, which no program needs: none is looked into."""
        is_later = birth_ns(path) > self.since_ns
        if is_later and path not in self.known:
            self.found.append(path)
        return is_later

    def _undated(self, path: str) -> None:
        """Its status was changed since. That may be its mode, or a second name (as a recording gives the files that a
        program reads); a copy that keeps the time was made since. It may be needed, so it is shown."""
        if len(self.undated) < MOST_UNDATED and not self._is_others(path) and birth_ns(path) > self.since_ns:
            self.undated.append(path)

    def _is_others(self, path: str) -> bool:
        folder, *outer = map(str, PurePath(path).parents)
        named = self.shared | self.own
        return folder not in named and next((around for around in outer if around in named), "") in self.shared


def later_files(
    folders: Iterable[str],
    since_ns: int,
    *,
    known: Collection[str],
    left_out: Iterable[str] = (),
    most: int = MOST_ENTRIES,
    mounts: Path = file_system.MOUNTS,
) -> LaterFiles:
    """Below `folders`; a folder stands for all that is in it where nothing in it is older. `known`: files that are laid
    as they were, and folders that were there. `left_out`: folders that are not looked into."""
    named = sorted({os.path.normpath(folder) for folder in folders})
    shared = frozenset(filter(_is_shared, named))
    search = _Search(
        since_ns=since_ns,
        known=set(known),
        shared=shared,
        own=frozenset(named) - shared,
        left_out=tuple(left_out),
        kernels=file_system.kernels(mounts),
        left=most,
    )
    unsearched: list[str] = []
    for folder in sorted(named, key=lambda folder: (folder in shared, folder)):  # others' files come last
        if not unfit(folder) and path_kind.is_folder(folder) and not path_kind.is_link(folder):
            search.known.add(folder)  # the folder itself was named or written into
            before = len(search.cut)
            search.folder(folder)
            if cut := search.cut[before:]:  # hundreds, once the bound is reached
                unsearched.append(os.path.commonpath(cut))
    return LaterFiles(tuple(sorted(set(search.found))), Unhidden(tuple(unsearched), tuple(sorted(search.undated))))


def _is_shared(folder: str) -> bool:
    try:
        return bool(Path(folder).stat().st_mode & stat.S_ISVTX)
    except (OSError, ValueError):  # gone, or no path at all
        return False


def _is_kernels(folder: str) -> bool:
    """/proc, for example: a rank has its own, and no file of this machine is to be hidden in it."""
    return folder != "/" and bool(problem(folder) or problem(os.path.realpath(folder)))


def _is_left_out(entry: os.DirEntry[str]) -> bool:
    """A virtual environment has tens of thousands of files: what is installed is compared with the capsule's list. No
    program reads the recorder's copy."""
    is_recorder = os.path.lexists(f"{entry.path}/sitecustomize.py") and os.path.lexists(f"{entry.path}/prismdbg/rank")
    return is_recorder or entry.name in LEFT_OUT or os.path.lexists(f"{entry.path}/pyvenv.cfg")


def _is_run(entry: os.DirEntry[str]) -> bool:
    return os.path.lexists(f"{entry.path}/run.json") and os.path.lexists(f"{entry.path}/ranks")


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name
