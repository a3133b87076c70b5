"""Whether a folder is as it was: what a saved image is compared by before it is restored. Standard library only."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

READ_BYTES = 8 << 20  # a longer file (memory pages) is taken for the same by its inode, length and times


def digest_of(folder: Path) -> str:
    """Of every name below it and what is behind it. Links are not followed."""
    digest = hashlib.sha256()
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *names]):
            path = Path(parent, name)
            digest.update(f"{path.relative_to(folder)}\0{_state(path)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


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
