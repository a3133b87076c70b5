"""What /proc tells of a process, as proc(5) describes it, for host and rank."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path


def text_of(file: Path) -> str:
    """A file of /proc that has the process's name. The kernel cuts a name at 15 bytes, also inside a character."""
    return file.read_text("utf-8", "replace")


def fields_of(pid: int) -> list[str]:
    """What follows the command's name: [0] is the state, proc(5)'s field 3. `OSError` where the process is gone."""
    return text_of(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()


def is_dead(fields: list[str]) -> bool:
    """Its parent has not waited for it yet, or is just doing so."""
    return fields[0] in ("Z", "X")


def is_stopped(fields: list[str]) -> bool:
    """By a signal such as SIGSTOP, or by a debugger: it does nothing until somebody lets it continue."""
    return fields[0] in ("T", "t")


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot (field 22); 0 where it is gone, or dead and not waited for."""
    try:
        fields = fields_of(pid)
    except OSError:
        return 0
    return 0 if is_dead(fields) else int(fields[19])


def seconds_since(ticks: int | None) -> float:
    """How long ago that was, of a number of clock ticks since boot; for ever where it is not known."""
    if ticks is None:
        return math.inf
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
