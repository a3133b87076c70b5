"""Paths of its node that a rank will want again: files it read, folders it writes into. Empty folders cost nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from prismdbg.capsule import rank_path
from prismdbg.capsule.log.events import Note, RankLog
from prismdbg.capsule.rank_json import RankJson, required, variables_of
from prismdbg.model.moment import Moment
from prismdbg.settings.overwritten_copies import prefix

MAX_WORD_BYTES = 4096
_SOURCES = frozenset((".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hip", ".hpp", ".mm", ".sycl"))
COARSE_NS = 20_000_000  # a file's time is that of the kernel's last tick, and may be before a read that came first


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPaths:
    """`files` it read, `folders` it may write into, as they were at A; `absent` at A: what it made itself later."""

    files: tuple[str, ...]
    folders: tuple[str, ...]
    absent: tuple[str, ...]


def rank_paths(log: RankLog, rank: dict[str, Any], a: Moment | None) -> RankPaths:
    """`a`: None for the program's start. Folders are the one that the program was started in, those that it was seen to
    write into, and, since native code is not seen, those that its command line and its environment name. A library
    that torch built for it is there in any case, with its source: where a replay runs there may be no compiler."""
    built = {Path(rank_path.usual(str(note.data["path"]))) for note in log.notes if note.kind == "built"}
    above = {folder for path in built for folder in path.parents}
    around = {path.parent for path in built}
    read = map(Path, files_read(log, rank))
    sources = {path for path in read if path.suffix in _SOURCES and path.parent in around}
    absent = {
        Path(rank_path.usual(note.data["path"]))
        for note in log.notes
        if note.kind == "made" and (a is None or Moment.parse(str(note.data["moment"])) >= a)
    }
    absent -= built | above | sources

    def were_there(paths: Iterable[str]) -> tuple[str, ...]:
        return tuple(path for path in map(rank_path.usual, paths) if fit(path) and not with_absent(path))

    def with_absent(path: str) -> bool:
        return bool(absent & {Path(path), *Path(path).parents})

    def fit(path: str) -> bool:
        """No program opens what is longer by its whole name, so nothing is there to be laid or hidden."""
        return not rank_path.unfit(path)

    folders = {str(note.data["path"]) for note in log.notes if note.kind == "folder"} | {rank["cwd"], *_named(rank)}
    return RankPaths(
        files=were_there(files_read(log, rank)),
        folders=were_there(path for path in sorted(folders) if _is_folder(Path(path))),
        absent=tuple(filter(fit, sorted(map(str, absent)))),
    )


def files_read(log: RankLog, rank: Mapping[str, Any]) -> list[str]:
    """What the program read, and the program itself."""
    noted = [rank_path.usual(str(note.data["path"])) for note in log.notes if note.kind == "file"]
    required(cast(RankJson, rank), "cwd", "argv")
    script = Path(rank["cwd"]) / rank["argv"][0] if rank["argv"] and rank["argv"][0] else None
    return (
        [*noted, str(script)] if script is not None and not rank_path.unfit(str(script)) and script.is_file() else noted
    )


def changed_after_read(log: RankLog, rank: Mapping[str, Any], began_ns: int, slack_ns: int = 0) -> Iterator[str]:
    """Files that the program read and that were written to after that, or removed. `began_ns`: where no log tells when
    it did; with `slack_ns` also those that were written to so shortly before."""
    read_at = _read_at(log)
    for path in dict.fromkeys(files_read(log, rank)):
        try:
            if Path(path).stat().st_mtime_ns > read_at.get(path, began_ns) - slack_ns:
                yield path
        except OSError:
            yield path


def opened_and_gone(log: RankLog, rank: Mapping[str, Any]) -> list[str]:
    """Files that the program opened to read them, did not make, and that are not there: they were removed since, or it
    found none."""
    made = {rank_path.usual(str(note.data["path"])) for note in log.notes if note.kind == "made"}
    return [path for path in dict.fromkeys(files_read(log, rank)) if path not in made and not Path(path).exists()]


def copies_as_read(log: RankLog, copies: Path, changed: Iterable[str], a_ns: int | None) -> dict[str, Path]:
    """Of the files in `changed`, those of which the run kept what they were at the start moment. `a_ns`: when that was;
    None for the program's start, where a file must be what it was when it was read."""
    names = sorted(path.name for path in copies.iterdir()) if copies.is_dir() else []
    read_at, found = _read_at(log), {}
    for path in changed:
        at_ns = read_at.get(path, 0) if a_ns is None else a_ns
        mine = [copies / name for name in names if name.startswith(prefix(path)) and name.count(".") == 1]
        older = [copy for copy in mine if copy.stat().st_mtime_ns <= at_ns]
        newest = max(older, key=lambda copy: copy.stat().st_mtime_ns, default=None)
        if newest is not None and (a_ns is None or newest.stat().st_ctime_ns > a_ns):  # written to after that
            found[path] = newest
    return found


def _read_at(log: RankLog) -> dict[str, int]:
    """By path when the program first read it, since the epoch."""
    found: dict[str, int] = {}
    for note in log.notes:
        if note.kind == "file":
            found.setdefault(rank_path.usual(str(note.data["path"])), _seen_ns(note) + log.wall_offset_ns)
    return found


def _seen_ns(note: Note) -> int:
    """Files that are read before the log is there are noted when it is."""
    seen = note.data.get("seen_ns")
    return seen if isinstance(seen, int) else note.time_ns


def written_into(log: RankLog, rank: Mapping[str, Any]) -> tuple[str, ...]:
    """Folders of which the program may list the files: those that it wrote into, that its command line names, and the
    one that it works in."""
    noted = [str(note.data["path"]) for note in log.notes if note.kind == "folder"]
    words = [str(word).rpartition("=")[2] for word in rank["orig_argv"][1:]]
    return tuple(dict.fromkeys((*noted, *_folders_of(words, str(rank["cwd"])), str(rank["cwd"]))))


def programs_started(log: RankLog) -> tuple[str, ...]:
    paths = (str(note.data["path"]) for note in log.notes if note.kind == "ran")
    return tuple(path for path in paths if not rank_path.unfit(path))


def _named(rank: dict[str, Any]) -> Iterator[str]:
    """What is a folder, or lies in one, of all words of the command line and values of the environment."""
    words = [str(word).rpartition("=")[2] for word in rank["orig_argv"][1:]]
    return _folders_of([*words, *map(str, variables_of(rank).values())], str(rank["cwd"]))


def _folders_of(words: Iterable[str], cwd: str) -> Iterator[str]:
    for word in words:
        if "/" not in word or ":" in word or "\0" in word or len(word) > MAX_WORD_BYTES:
            continue
        path = Path(cwd, word)
        found = next((folder for folder in (path, path.parent) if _is_folder(folder)), None)
        if found is not None:
            yield str(found)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # no path at all
        return False
