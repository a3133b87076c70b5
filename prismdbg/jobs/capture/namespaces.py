"""Whether a process of our PID namespace is in our other namespaces, too. A checkpoint of one that is not asks for them
when it is restored, which `checkpoint/image_check.py` refuses."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_KINDS = {
    "mnt": "mount",
    "user": "user",
    "net": "network",
    "uts": "host name (UTS)",
    "ipc": "IPC",
    "cgroup": "control group",
}


def other_namespace(pid: int) -> str:
    """What the first one that differs is called; empty where none does, and where that may not be seen."""
    for kind, called in _KINDS.items():
        with suppress(OSError):  # it has ended, is another user's, or the kernel has no such namespaces
            if Path(f"/proc/{pid}/ns/{kind}").stat().st_ino != Path(f"/proc/self/ns/{kind}").stat().st_ino:
                return called
    return ""
