"""Which command made something that outlives it: a container, a group. The next removes what a killed one left."""

from __future__ import annotations

import os
from pathlib import Path

from prismdbg.settings.process_stat import start_ticks


def owner() -> str:
    """This process, as one word: its user, its PID namespace, its PID there, and when it started."""
    return _word(os.getpid())


def is_gone(word: str) -> bool:
    """Whether this was a process of this user, and has ended. One of another user or namespace cannot be seen from here
    for certain, and counts as alive."""
    *place, pid, _ = [*word.split("."), "", ""][:4]
    return place == _place() and pid.isdecimal() and _word(int(pid)) != word


def _word(pid: int) -> str:
    return ".".join((*_place(), str(pid), str(start_ticks(pid))))


def _place() -> list[str]:
    return [str(os.getuid()), str(Path("/proc/self/ns/pid").stat().st_ino)]
