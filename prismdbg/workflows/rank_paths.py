"""Paths of its node that a rank will want again: files it read, folders it writes into. Empty folders cost nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from prismdbg.capsule.log_reader import RankLog
from prismdbg.capsule.rank_json import RankJson, required
from prismdbg.model.moment import Moment

MAX_WORD_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPaths:
    """`files` it read, `folders` it may write into, as they were at A; `absent` at A: what it made itself later."""

    files: tuple[str, ...]
    folders: tuple[str, ...]
    absent: tuple[str, ...]


def rank_paths(log: RankLog, rank: dict[str, Any], a: Moment | None) -> RankPaths:
    """`a`: None for the program's start. Folders are those that the program was seen to write into, and, since native
    code is not seen, those that its command line and its environment name."""
    absent = {
        Path(note.data["path"])
        for note in log.notes
        if note.kind == "made" and (a is None or Moment.parse(str(note.data["moment"])) >= a)
    }

    def were_there(paths: Iterable[str]) -> tuple[str, ...]:
        return tuple(path for path in paths if not absent & {Path(path), *Path(path).parents})

    folders = {str(note.data["path"]) for note in log.notes if note.kind == "folder"} | set(_named(rank))
    return RankPaths(
        files=were_there(files_read(log, rank)),
        folders=were_there(path for path in sorted(folders) if _is_folder(Path(path))),
        absent=tuple(sorted(map(str, absent))),
    )


def files_read(log: RankLog, rank: Mapping[str, Any]) -> list[str]:
    """What the program read, and the program itself."""
    noted = [str(note.data["path"]) for note in log.notes if note.kind == "file"]
    required(cast(RankJson, rank), "cwd", "argv")
    script = Path(rank["cwd"]) / rank["argv"][0] if rank["argv"] and rank["argv"][0] else None
    return [*noted, str(script)] if script is not None and script.is_file() else noted


def changed_after_read(log: RankLog, rank: Mapping[str, Any], began_ns: int) -> Iterator[str]:
    """Files that the program read and that were written to after that. `began_ns`: where no log tells when it did."""
    read_at: dict[str, int] = {}
    for note in log.notes:
        if note.kind == "file":
            read_at.setdefault(str(note.data["path"]), note.time_ns + log.wall_offset_ns)
    for path in dict.fromkeys(files_read(log, rank)):
        try:
            if Path(path).stat().st_mtime_ns > read_at.get(path, began_ns):
                yield path
        except OSError:
            continue  # the capsule says that it is missing


def written_into(log: RankLog, rank: Mapping[str, Any]) -> tuple[str, ...]:
    """Folders of which the program may list the files: those that it wrote into, that its command line names, and the
    one that it works in."""
    noted = [str(note.data["path"]) for note in log.notes if note.kind == "folder"]
    words = [str(word).rpartition("=")[2] for word in rank["orig_argv"][1:]]
    return tuple(dict.fromkeys((*noted, *_folders_of(words, str(rank["cwd"])), str(rank["cwd"]))))


def _named(rank: dict[str, Any]) -> Iterator[str]:
    """What is a folder, or lies in one, of all words of the command line and values of the environment."""
    words = [str(word).rpartition("=")[2] for word in rank["orig_argv"][1:]]
    return _folders_of([*words, *map(str, rank["environment"].values())], str(rank["cwd"]))


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
