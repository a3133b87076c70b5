"""Paths of its node that a rank will want again: files it read, folders it writes into. Empty folders cost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prismdbg.capsule.log_reader import RankLog
from prismdbg.model.moment import Moment

MAX_WORD_BYTES = 4096


def opened_files(log: RankLog, rank: dict[str, Any]) -> list[str]:
    """What the program read, and the program itself."""
    noted = [str(note.data["path"]) for note in log.notes if note.kind == "file"]
    script = Path(rank["cwd"]) / rank["argv"][0] if rank["argv"] and rank["argv"][0] else None
    return [*noted, str(script)] if script is not None and script.is_file() else noted


def needed_folders(log: RankLog, rank: dict[str, Any], a: Moment | None) -> list[str]:
    """Folders that were there at A (None: the program's start) and may be written into.

    Those the program was seen to write into, and, since native code is not seen, those that its command line and its
    environment name.
    """
    written = {str(note.data["path"]) for note in log.notes if note.kind == "folder"}
    made = {
        Path(note.data["path"])
        for note in log.notes
        if note.kind == "made" and (a is None or Moment.parse(str(note.data["moment"])) >= a)
    }
    folders = [Path(path) for path in sorted(written | set(_named(rank)))]
    return [str(path) for path in folders if path.is_dir() and not made & {path, *path.parents}]


def _named(rank: dict[str, Any]) -> Iterator[str]:
    """What is a folder, or lies in one, of all words of the command line and values of the environment."""
    words = [str(word).rpartition("=")[2] for word in rank["orig_argv"][1:]]
    for word in [*words, *map(str, rank["environment"].values())]:
        if "/" not in word or ":" in word or "\0" in word or len(word) > MAX_WORD_BYTES:
            continue
        path = Path(rank["cwd"], word)
        found = next((folder for folder in (path, path.parent) if _is_folder(folder)), None)
        if found is not None:
            yield str(found)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # no path at all
        return False
