"""What lies at a path that somebody else has named.

A path that this user may not look at is nothing. pathlib's own questions raise `PermissionError` there: for what is
below another user's folder or `/proc/PID/root`.
"""

from __future__ import annotations

import stat
from pathlib import Path


def is_folder(path: str | Path) -> bool:
    return stat.S_ISDIR(_mode(path))


def is_file(path: str | Path) -> bool:
    return stat.S_ISREG(_mode(path))


def is_link(path: str | Path) -> bool:
    return stat.S_ISLNK(_mode(path, follow=False))


def exists(path: str | Path) -> bool:
    return _mode(path) != 0


def _mode(path: str | Path, *, follow: bool = True) -> int:
    try:
        return Path(path).stat(follow_symlinks=follow).st_mode
    except (OSError, ValueError):  # ValueError: a zero byte in it
        return 0
