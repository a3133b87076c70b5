"""Tells a recorded process from one that was restored from its checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

from prismdbg.settings.process_stat import start_ticks


def own_start_ticks() -> int:
    """This process's start time in clock ticks since boot: a restored process has another. 0 where no file can be
    opened."""
    return start_ticks(os.getpid())


class OwnProcess:
    """Remembers the process that it is made in."""

    def __init__(self) -> None:
        self._ticks, self._namespace = own_start_ticks(), _pid_namespace()

    @property
    def is_restored(self) -> bool:
        """Whether this is another process now. The PID namespace decides where the program has used up its
        descriptors, and the start time cannot be read: a restored process has a namespace of its own."""
        ticks = own_start_ticks()
        return ticks != self._ticks if ticks and self._ticks else _pid_namespace() != self._namespace


def _pid_namespace() -> int:
    """Its inode. Opens no file."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0
