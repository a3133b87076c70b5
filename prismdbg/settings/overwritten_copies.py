"""What copies of files are called that a recorded program read and then wrote to
(`rank/recording/inputs/overwritten.py`)."""

from __future__ import annotations

import hashlib
import os

FOLDER = "overwritten"  # below the run's


def kept_name(path: str, mtime_ns: int) -> str:
    """Of the copy; `mtime_ns` is the file's."""
    return f"{prefix(path)}{mtime_ns}"


def prefix(path: str) -> str:
    """What the names of all copies of this path begin with."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:40] + "."
