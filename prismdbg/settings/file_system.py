"""Is a file system one of this machine's, or may its server (NFS, FUSE, a parallel one) stop to answer?"""

from __future__ import annotations

import errno
import re
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from prismdbg.settings.own_thread import start_own_thread

T = TypeVar("T")

LONGEST_WAIT_S = 5.0  # of a thread of the job, for a server
_LOCAL = frozenset(
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "ramfs", "overlay", "f2fs", "zfs", "bcachefs"]
)  # no server is asked
_KERNELS = frozenset(
    ["proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "selinuxfs", "bpf",
     "configfs", "pstore", "efivarfs", "mqueue", "binfmt_misc", "fusectl", "hugetlbfs", "nsfs"]
)  # fmt: skip
MOUNTS = Path("/proc/self/mountinfo")


def is_local(folder: Path, mounts: Path = MOUNTS) -> bool:
    """Without asking the file system itself: it may be what does not answer."""
    return type_of(folder, mounts) in _LOCAL


def is_memory(folder: Path) -> bool:
    """Whether files there take up this machine's memory."""
    return type_of(folder) in ("tmpfs", "ramfs")


def type_of(folder: Path, mounts: Path = MOUNTS) -> str:
    """Of the file system in which a folder is, as the kernel names it; empty where that is not known."""
    folder, found = folder.absolute(), ("", "")
    for point, kind in _mounted(mounts):
        if len(point) >= len(found[0]) and folder.is_relative_to(point):  # the last one lies on top
            found = point, kind
    return found[1]


def kernels(mounts: Path = MOUNTS) -> frozenset[str]:
    """Where file systems lie whose files the kernel makes up, as in /proc; another one may be mounted anywhere."""
    return frozenset(point for point, kind in _mounted(mounts) if kind in _KERNELS)


def _mounted(mounts: Path) -> Iterator[tuple[str, str]]:
    """Each mount point and the type that lies there; nothing where that is not known."""
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").rstrip("\n").split("\n")
    except OSError:
        return
    for line in lines:
        fields = line.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
        yield point, fields[fields.index("-", 6) + 1]


def bounded(action: Callable[[], T], bound_s: float = LONGEST_WAIT_S) -> T:
    """By a thread of its own. `TimeoutError` where it takes longer; what it does then, it does behind our back."""
    done: deque[T] = deque()
    failed: deque[BaseException] = deque()

    def run() -> None:
        try:
            done.append(action())
        except BaseException as error:
            failed.append(error)

    thread = start_own_thread("prismdbg-bounded", run)
    thread.join(bound_s)
    if failed:
        raise failed[0]
    if not done:
        raise TimeoutError(errno.ETIMEDOUT, "the file system does not answer")
    return done[0]
