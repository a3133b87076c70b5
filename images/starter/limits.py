"""What the rank may take, as far as that is for the starter to see to, and which limit was met. Standard library only.

The rest is done by those who start the starter: `prismdbg.runtime.limits` has all of it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from typing import Any

from mounts import mounts

IN_CONTAINER = (  # where the engine shows a container its own group, in version 2 and 1
    ("memory", "/sys/fs/cgroup/memory.events", "oom_kill"),
    ("memory", "/sys/fs/cgroup/memory/memory.oom_control", "oom_kill"),
    ("pids", "/sys/fs/cgroup/pids.events", "max"),
    ("pids", "/sys/fs/cgroup/pids/pids.events", "max"),
)
FULL = 64 << 10  # bytes: where less is free a file system counts as full
MOST_FILES, MOST_DEEP = 200_000, 100
TOO_LARGE = 128 + signal.SIGXFSZ

Spec = dict[str, Any]


class Met:
    """Which limits the rank has met since this was made. Made while the counters can be seen."""

    def __init__(self, spec: Spec) -> None:
        self._limits = spec["limits"]
        self._isolation = spec["isolation"]
        self._scratch = spec["scratch"]
        self._counters = []
        for name, path, key in self._limits["events"] or (IN_CONTAINER if self._limits["in_container"] else ()):
            with contextlib.suppress(OSError):
                self._counters.append((name, os.open(path, os.O_RDONLY | os.O_CLOEXEC), key))
        self._began = [_count(descriptor, key) for _, descriptor, key in self._counters]

    def counted(self) -> set[str]:
        """As far as the kernel counts it; at any time."""
        return {
            name
            for (name, descriptor, key), before in zip(self._counters, self._began, strict=True)
            if _count(descriptor, key) > before
        }

    def names(self, code: int) -> list[str]:
        """`code`: what the rank ended with."""
        met = self.counted()
        if code == TOO_LARGE:
            met.add("disk")
        if self._isolation == "namespaces" and any(map(is_full, in_memory(self._scratch))):
            met.add("memory")
        if (self._isolation != "none" or self._limits["in_container"]) and is_full("/dev/shm"):
            met.add("shm")
        return sorted(met)


def _count(descriptor: int, key: str) -> int:
    text = os.pread(descriptor, 4096, 0).decode()
    return next((int(words[1]) for line in text.splitlines() if (words := line.split())[:1] == [key]), 0)


def in_memory(scratch: str) -> list[str]:
    """The root, and where the layers in `scratch` are seen: they share one file system, which an overlay shows as its
    own. What lies over another mount hides it."""
    seen = {mount.point: mount for mount in mounts()}.values()
    upper = f",upperdir={scratch}/"
    return ["/", *(mount.point for mount in seen if mount.kind == "overlay" and upper in mount.options)]


def is_full(path: str) -> bool:
    try:
        status = os.statvfs(path)
    except OSError:
        return False
    return status.f_blocks > 0 and status.f_bavail * status.f_frsize < FULL


def limit_self(spec: Spec) -> None:
    """Of the calling process and all that it starts."""
    for kind, most in _of_process(spec["limits"]).items():
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def limit_restored(spec: Spec, pids: list[int]) -> None:
    """A restore gives a rank the limits that it had. Before any of it runs: a child has the limits of its parent."""
    for pid in pids:
        for kind, most in _of_process(spec["limits"]).items():
            with contextlib.suppress(ProcessLookupError):
                _limit(pid, kind, most)


def _limit(pid: int, kind: int, most: int) -> None:
    """`OSError` where the process could take more."""
    try:
        resource.prlimit(pid, kind, (most, most))
    except PermissionError:
        hard = resource.prlimit(pid, kind)[1]
        if hard == resource.RLIM_INFINITY or hard > most:
            raise


def _of_process(limits: dict[str, Any]) -> dict[int, int]:
    found = {resource.RLIMIT_FSIZE: limits["disk_bytes"]}
    if not limits["events"] and not limits["in_container"]:  # no group bounds them together
        found |= {resource.RLIMIT_DATA: limits["memory_bytes"], resource.RLIMIT_NPROC: limits["processes"]}
    return found


class Room:
    """What is free where the rank's own folder lies. It may fill that with what no look finds: files that it has
    removed and still holds open. Made before there is a rank."""

    def __init__(self, folder: int, limit_bytes: int) -> None:
        """`limit_bytes`: what the rank may take there; nothing that leaves it that much is too little."""
        self._folder = folder
        free_bytes, files = self._free()
        self._least_bytes = min(free_bytes // 4, max(free_bytes - limit_bytes, 0) // 2)
        self._least_files = files // 4  # 0 where a file system counts none

    def is_left(self) -> bool:
        free_bytes, files = self._free()
        return free_bytes >= self._least_bytes and files >= self._least_files

    def _free(self) -> tuple[int, int]:
        status = os.fstatvfs(self._folder)
        return status.f_bavail * status.f_frsize, status.f_favail


def used_bytes(folder: int) -> int:
    """On disk, in the rank's own folder and below. Very many files, folders nested deep, or one that cannot be looked
    into count as more than any limit: nobody could look through them in time, and the rank may hide anything there."""
    total = files = 0
    try:
        for parent, folders, names, here in os.fwalk(".", dir_fd=folder, onerror=_not_hidden, follow_symlinks=False):
            for name in (*names, *folders):
                total += _on_disk(name, here)
            files += len(names) + len(folders)
            if files > MOST_FILES or parent.count("/") > MOST_DEEP:
                return 1 << 62
    except PermissionError:
        return 1 << 62
    return total


def _on_disk(name: str, folder: int) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_blocks * 512
    except OSError as error:
        _not_hidden(error)
        return 0


def _not_hidden(error: OSError) -> None:
    """What is gone meanwhile is no error."""
    if isinstance(error, PermissionError):
        raise error
