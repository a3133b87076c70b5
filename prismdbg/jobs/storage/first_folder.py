"""A folder that is renamed to its place, which only one of several processes can do, on whichever node they are."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path


def place_first(coming: Path, place: Path, fill: Callable[[Path], None]) -> bool:
    """Whether it was this caller's folder that came to its place. coming: a name of its own beside it.

    If the reply of a file server is lost, the rename is tried again and fails, though it was done. So it is the folder
    that is there which says whose it is. `OSError` where none is there.
    """
    coming.mkdir(mode=0o700)
    own = coming.stat().st_ino
    try:
        fill(coming)
        coming.rename(place)
    except OSError:
        is_own = place.is_dir() and place.stat().st_ino == own
        shutil.rmtree(coming, ignore_errors=True)
        if not place.is_dir():
            raise
        return is_own
    return True
