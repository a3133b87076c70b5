"""How much memory a process may still take: of the machine, and of each control group around it (v1 and v2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_MACHINE = Path("/proc/meminfo")
# the limit, what is taken, and which line of memory.stat is a cache that the kernel gives up first
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")


def room_bytes(pid: int, root: Path = ROOT) -> int:
    """Bytes that the process may still take: the least of what the machine and its control groups leave. `OSError`
    where the kernel says neither."""
    rooms = [*_available_bytes(), *_rooms(pid, root)]
    if not rooms:
        raise OSError(f"{_MACHINE} has no MemAvailable, and no control group of process {pid} has a limit")
    return min(rooms)


def _available_bytes() -> Iterator[int]:
    """What can be taken without swapping, as the kernel estimates it in KiB; nothing where it does not."""
    for line in _MACHINE.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024


def _rooms(pid: int, root: Path) -> Iterator[int]:
    for line in lines_of(pid):
        number, controllers, path = line.split(":", 2)
        if number == "0" or "memory" in controllers.split(","):
            top, names = (root, _V2) if number == "0" else (root / "memory", _V1)
            folder = top / path.lstrip("/")
            for group in (folder, *folder.parents):
                if group == top.parent:
                    break
                yield from _room(group, *names)


def lines_of(pid: int) -> list[str]:
    """Of `/proc/PID/cgroup`; none where the process has ended."""
    try:
        return Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return []


def _room(group: Path, limit: str, taken: str, cache: str) -> Iterator[int]:
    """Nothing where the group has no limit."""
    try:
        most, used = (group / limit).read_text().strip(), int((group / taken).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return
    if most.isdecimal():
        yield max(int(most) - used + int(stat.get(cache, 0)), 0)
