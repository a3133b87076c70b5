"""Links in a folder that came from elsewhere: only those are kept that lead to something in it.

They are looked at once all of them are there: where one of them leads may depend on another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def leads_inside(link: Path, folder: Path) -> bool:
    """Whether a relative link leads to something in `folder`, through other links or not. Nobody else writes there."""
    try:
        return not link.readlink().is_absolute() and link.resolve(strict=True).is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a ring of links
        return False


def drop_others(folder: Path) -> int:
    """Removes the links that lead out of `folder` or nowhere, and says how many. What led through one of them leads
    nowhere then."""
    dropped = 0
    while doomed := [link for link in _links(folder) if not leads_inside(link, folder)]:
        for link in doomed:
            link.unlink()
        dropped += len(doomed)
    return dropped


def is_below_link(path: Path, folder: Path) -> bool:
    """Whether what is made at `path` would be made elsewhere than its name says."""
    above = path.relative_to(folder).parents
    return any((folder / part).is_symlink() for part in above)


def _links(folder: Path) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        yield from (path for name in (*folders, *files) if (path := Path(at, name)).is_symlink())
