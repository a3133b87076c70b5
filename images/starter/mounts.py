"""What is mounted in this process's view of the file system, by /proc/PID/mountinfo (proc_pid_mountinfo(5))."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

_ESCAPED = re.compile(rb"\\([0-7]{3})")  # a blank, a tab, a newline and a backslash are written so; nothing else is


class Mount(NamedTuple):
    """`options`: of the file system, as `mount` would show them."""

    point: str
    kind: str
    options: str


def mounts(table: bytes | None = None) -> list[Mount]:
    """In the order in which they were made. `table`: this process's, unless given. Names may hold any byte but zero."""
    lines = (Path("/proc/self/mountinfo").read_bytes() if table is None else table).split(b"\n")
    return [_mount(line) for line in lines if line]


def _mount(line: bytes) -> Mount:
    fields, _, rest = line.partition(b" - ")
    kind, _, options = (*rest.split(b" ", 2), b"")[:3]
    return Mount(_plain(fields.split(b" ")[4]), _plain(kind), _plain(options))


def _plain(text: bytes) -> str:
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), text))
