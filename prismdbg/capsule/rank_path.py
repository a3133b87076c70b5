"""Which paths a capsule may name for the rank's files, folders and sockets. Nothing is looked at on the disk."""

from __future__ import annotations

import os

from prismdbg.errors import CapsuleError

_KERNEL = ("/proc", "/sys", "/dev")
_SHARED_MEMORY = "/dev/shm"
# What the loader of every program reads before anything else: the replay's own programs would obey it.
_LOADER = ("/etc/ld.so.preload",)
_HINT = "the capsule was altered; do not use it"


def problem(path: str) -> str:
    """Why no file or folder of a rank can lie there, as the end of a sentence; empty where it can."""
    if not is_plain(path) or path == "/":
        return "is not a plain absolute path"
    if path in _LOADER:
        return "would be loaded into every program"
    in_kernel = any(f"{path}/".startswith(f"{view}/") for view in _KERNEL)
    if in_kernel and not path.startswith(f"{_SHARED_MEMORY}/") and path != _SHARED_MEMORY:
        return "belongs to the kernel"
    return ""


def is_plain(path: str) -> bool:
    """Absolute, and with nothing in it that leads elsewhere."""
    return path.startswith("/") and "\0" not in path and os.path.normpath(path) == path


def require_outside_kernel(path: str) -> None:
    """`CapsuleError` for a path at which nothing of a rank can lie."""
    if reason := problem(path):
        raise CapsuleError(f"the capsule names {path[:80]!r}, which {reason}", hint=_HINT)
