"""What lies below a folder that somebody else made: nested to any depth, with links that are not followed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path


def entries(folder: Path, on_error: Callable[[OSError], None] | None = None) -> Iterator[os.DirEntry[str]]:
    """Files and folders, each folder before what is in it. `on_error`: told of a folder that cannot be read, whose path
    is longer than Linux takes for instance; without it the `OSError` is raised."""
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as listed:
                found = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            if on_error is None:
                raise
            on_error(error)
            continue
        yield from found
        waiting += [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
