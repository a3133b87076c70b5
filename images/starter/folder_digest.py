"""Whether a folder is as it was: what a saved image is compared by before it is restored. Standard library only."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import NoReturn

READ_BYTES = 8 << 20  # a longer file (memory pages) is taken for the same by its inode, length and times

States = dict[str, str]  # of every name below a folder, relative to it: what is behind it


def states_of(folder: Path) -> States:
    """Links are not followed. OSError: a part of it cannot be read."""
    found: States = {}
    for parent, folders, names in os.walk(folder, onerror=_raise):
        for name in [*folders, *names]:
            path = Path(parent, name)
            found[str(path.relative_to(folder))] = _state(path)
    return found


def digest_of(states: States) -> str:
    digest = hashlib.sha256()
    for name in sorted(states):
        digest.update(f"{name}\0{states[name]}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def differing(before: States, now: States) -> list[str]:
    """Names, each with what it was and what it is."""
    names = sorted(before.keys() | now.keys())
    return [
        f"{name}: {before.get(name, 'missing')}, now {now.get(name, 'missing')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _raise(error: OSError) -> NoReturn:
    raise error


def _state(path: Path) -> str:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return f"link {path.readlink()}"
    if not stat.S_ISREG(status.st_mode):
        return f"kind {stat.S_IFMT(status.st_mode)}"
    if status.st_size <= READ_BYTES:
        return f"{status.st_size} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    # not its change time: the copy of an unchanged file becomes part of a later image, too, by a hard link
    return f"{status.st_size} {status.st_ino} {status.st_mtime_ns}"
