"""Folders of this user's in a place where every user may make some (`/tmp`). Another one may have taken the name, to
be in the way or to read along: then it is another name."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from prismdbg.capsule.partial import is_own_folder


def own_folder(home: Path, name: str, mode: int) -> Path:
    """`home`/`name`, which is made by whoever needs it; where it is not ours, one of ours with more behind that name,
    which is made here."""
    first = home / name
    if not os.path.lexists(first):
        return first
    if found := own_folders(home, name):
        return found[0]
    made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=home))
    made.chmod(mode)
    return made


def own_folders(home: Path, name: str) -> list[Path]:
    """All that there are."""
    return [path for path in (home / name, *sorted(home.glob(f"{name}-*"))) if is_own_folder(path)]
