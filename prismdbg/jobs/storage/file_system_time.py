"""The time by which the files of a folder get theirs. All nodes see it alike, whatever their own clocks say."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

POLL_S = 0.1
MOST_APART_S = 86_400.0  # clocks that are this far apart are none to read files by


def now_in(folder: Path) -> float:
    """In seconds since 1970. `OSError` where nothing may be written there. That something is made there also makes the
    kernel ask a server for what others have made."""
    descriptor, path = tempfile.mkstemp(dir=folder, prefix=".now.")
    try:
        Path(path).unlink(missing_ok=True)  # at once: the process may end while a server is waited for
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def file_system_now(folder: Path) -> float:
    """As `now_in`; this machine's time where nothing may be written."""
    try:
        return now_in(folder)
    except OSError:
        return time.time()


class Beats:
    """For who may not write: what is written last is not later than now, and as long as nothing more is written, now is
    at least so much later. The own clock says nothing of it, for the file system may have another one."""

    def __init__(self, newest_s: Callable[[], float]) -> None:
        """newest_s: when the file was written that is written last, of those that are written again and again."""
        self._newest_s = newest_s
        self._seen: tuple[float, float] | None = None  # what it was, and since when by the own clock
        self._has_moved = False

    def now(self, silent_s: float) -> float:
        """Never too late. Where the own clock takes all for silent, it waits until something is written, `silent_s` at
        most: if nothing was, they are silent."""
        while True:
            newest_s, own_s = self._newest_s(), time.monotonic()
            if self._seen is None or newest_s != self._seen[0]:
                self._has_moved = self._seen is not None
                self._seen = newest_s, own_s
            waited_s = own_s - self._seen[1]
            if waited_s > silent_s or time.time() - newest_s > MOST_APART_S:
                return max(newest_s + waited_s, time.time())
            if self._has_moved or abs(time.time() - newest_s) <= silent_s:
                return newest_s + waited_s
            time.sleep(POLL_S)
