"""How much of this machine a replay may take (memory, processes, shared memory, disk), and what ends it.

What enforces them:

- Docker: the engine's cgroup (memory without swap, PIDs), and the size of /dev/shm.
- local and plain: a cgroup of prismdbg's own, version 1 or 2, where this user may make one (`runtime.cgroup`);
  otherwise the kernel's limits of each single process (data; processes of the user), which do not bound their sum.
- local: the layers that take the rank's writes, the root and /dev/shm are file systems in memory of a bounded size;
  without a cgroup they divide the limit of memory.
- everywhere: no file grows beyond the disk limit (RLIMIT_FSIZE), and the starter ends a replay whose own folder holds
  more. What a container writes into its own layer is bounded file by file only, and a plain process' files likewise.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from prismdbg.errors import RuntimeFailure

GIB = 1 << 30
MARGIN_BYTES = 4 * GIB
MOST_SHARED_BYTES = 16 * GIB
PROCESSES = 4096
OPTIONS = {"memory": "--limit-memory", "pids": "--limit-pids", "shm": "--limit-shm", "disk": "--limit-disk"}
_NAMES = {"memory": "memory", "pids": "processes", "shm": "shared memory (/dev/shm)", "disk": "disk"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`processes` counts threads as well, as the kernel does. recorded_bytes: of memory, what the recorded rank held at
    its peak; 0 where that is not known. is_shared_by_memory: shared_bytes follows from memory_bytes, and a larger
    `--limit-shm` changes nothing."""

    memory_bytes: int
    processes: int
    shared_bytes: int
    disk_bytes: int
    recorded_bytes: int = 0
    is_shared_by_memory: bool = False

    def without_group(self) -> Limits:
        """For a place whose file systems in memory nothing else bounds together: others need room beside /dev/shm."""
        half = self.memory_bytes // 2
        return replace(self, shared_bytes=half, is_shared_by_memory=True) if self.shared_bytes > half else self

    def text(self, name: str) -> str:
        """The limit of this name, as it is typed."""
        if name == "pids":
            return str(self.processes)
        value = {"memory": self.memory_bytes, "shm": self.shared_bytes, "disk": self.disk_bytes}[name]
        return f"{value / (1 << 20):.0f}MiB"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a user wants instead of the usual."""

    memory_bytes: int | None = None
    processes: int | None = None
    shared_bytes: int | None = None
    disk_bytes: int | None = None

    def options(self) -> list[str]:
        """As they are typed."""
        given = zip(OPTIONS, (self.memory_bytes, self.processes, self.shared_bytes, self.disk_bytes), strict=True)
        return [word for name, value in given if value is not None for word in (OPTIONS[name], str(value))]

    def over(self, usual: Limits) -> Limits:
        memory_bytes = self.memory_bytes or usual.memory_bytes
        return Limits(
            memory_bytes=memory_bytes,
            processes=self.processes or usual.processes,
            shared_bytes=self.shared_bytes or min(usual.shared_bytes, memory_bytes),
            disk_bytes=self.disk_bytes or usual.disk_bytes,
            recorded_bytes=usual.recorded_bytes,
        )


USUAL = Asked()


class LimitReached(RuntimeFailure):
    """The replay was ended, or failed, at one of its limits: its end says nothing about the recorded run."""


def reached(name: str, limits: Limits) -> LimitReached:
    many = " (too many files or too deeply nested folders reach it, too)" if name == "disk" else ""
    had = f"; the recorded rank held {limits.recorded_bytes / (1 << 20):.0f}MiB" if limits.recorded_bytes else ""
    option = OPTIONS["memory" if name == "shm" and limits.is_shared_by_memory else name]
    return LimitReached(
        f"the replay reached its limit of {_NAMES[name]}: {limits.text(name)}{had if name == 'memory' else ''}{many}",
        hint=f"raise it with {option} if you trust the program",
    )


def usual(recorded_bytes: int = 0, folder: Path = Path("/var/tmp")) -> Limits:
    """Half of this machine, or twice what the recorded rank held and a margin where that is free now, and never all of
    it: what it held is the capsule's word, and other processes may need theirs. `folder`: on the disk that replays
    write to."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    recorded = min(2 * recorded_bytes + MARGIN_BYTES, available_bytes())
    memory = min(max(machine // 2, recorded), machine * 9 // 10)
    return Limits(
        memory_bytes=memory,
        processes=PROCESSES,
        shared_bytes=min(memory, MOST_SHARED_BYTES),
        disk_bytes=max(shutil.disk_usage(folder).free // 2, GIB),
        recorded_bytes=recorded_bytes,
    )


def available_bytes() -> int:
    """The kernel's own estimate; without a library, since a starter reads this module with any interpreter."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
