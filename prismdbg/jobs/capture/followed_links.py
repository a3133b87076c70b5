"""The links on the ways to the files that a rank read: a program may ask where its own name really leads."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from prismdbg.capsule import rank_path
from prismdbg.capsule.limits import MAX_NAMED


def followed_links(paths: Iterable[str]) -> dict[str, str]:
    """By name the file or folder to which each leads in the end: of these paths, and of the folders on their ways."""
    found: dict[str, str] = {}
    looked_at: set[str] = set()
    for path in paths:
        for name in (path, *map(str, PurePosixPath(path).parents)):
            if name in looked_at:
                break  # and so were those above it
            looked_at.add(name)
            if Path(name).is_symlink() and _is_ordinary(name, target := os.path.realpath(name)):
                found[name] = target
    return dict(sorted(found.items())[:MAX_NAMED])


def _is_ordinary(name: str, target: str) -> bool:
    return Path(target).exists() and not rank_path.problem(name) and not rank_path.problem(target)
