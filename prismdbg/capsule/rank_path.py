"""Which paths a capsule may name for the rank's files, folders and sockets. Nothing is looked at on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache

from prismdbg.capsule.limits import MAX_COMPONENTS, MAX_NAME_BYTES, MAX_PATH_BYTES
from prismdbg.errors import CapsuleError

_KERNEL = ("/proc", "/sys", "/dev")
_SHARED_MEMORY = "/dev/shm"
# What the loader of every program reads before anything else: the replay's own programs would obey it.
_LOADER = ("/etc/ld.so.preload",)
_LOADER_FOLDERS = frozenset(os.path.dirname(path) for path in _LOADER)  # noqa: PTH120
_HINT = "fetch the capsule again: this copy was altered"


def problem(path: str) -> str:
    """Why no file or folder of a rank can lie there, as the end of a sentence; empty where it can."""
    if not is_plain(path) or path == "/":
        return "is not a plain absolute path"
    if path in _LOADER:
        return "is loaded into every program"
    return "belongs to the kernel" if is_in_kernel(path) else ""


def is_in_kernel(path: str) -> bool:
    """Whether it lies in /proc, /sys or /dev: every place has these of its own. /dev/shm holds files of the rank."""
    in_kernel = any(f"{path}/".startswith(f"{view}/") for view in _KERNEL)
    return in_kernel and not f"{path}/".startswith(f"{_SHARED_MEMORY}/")


def is_usual(folder: str, name: str) -> bool:
    """Whether `folder/name` has no `problem`, told at once: a capsule lists tens of thousands of files. False for what
    `problem` must look at in detail."""
    return (
        name.isascii()
        and "/" not in name
        and "\0" not in name
        and name not in ("", ".", "..")
        and len(name) <= MAX_NAME_BYTES
        and _takes_any_name(folder)
    )


@lru_cache(maxsize=100_000)
def _takes_any_name(folder: str) -> bool:
    """Below the root and beside what the loader reads, one name has a problem that another one has not."""
    return folder != "" and folder not in _LOADER_FOLDERS and not problem(f"{folder}/{'x' * MAX_NAME_BYTES}")


def is_plain(path: str) -> bool:
    """Absolute, as long as a path may be, and with nothing in it that leads elsewhere."""
    return not unfit(path) and not path.startswith("//") and os.path.normpath(path) == path


def usual(path: str) -> str:
    """A path that is plain but for a second slash before it, which `os.path.abspath` leaves there."""
    return f"/{path.lstrip('/')}" if path.startswith("//") else path


def unfit(path: str) -> str:
    """Why it is no absolute path that Linux takes, as the end of a sentence; empty where it is."""
    return too_long(path) if path.startswith("/") else "is not an absolute path"


def too_long(path: str) -> str:
    """As `unfit`, also of a path that is not absolute."""
    try:
        data = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return "is not text that can name a file"
    if b"\0" in data:
        return "must not contain a zero byte"
    if len(data) >= MAX_PATH_BYTES:
        return f"has {len(data):,} bytes, and a path has at most {MAX_PATH_BYTES - 1:,}"
    names = [name for name in data.split(b"/") if name]
    if (longest := max(map(len, names), default=0)) > MAX_NAME_BYTES:
        return f"contains a name of {longest:,} bytes, and a name has at most {MAX_NAME_BYTES}"
    if len(names) > MAX_COMPONENTS:
        return f"has {len(names):,} components; the limit is {MAX_COMPONENTS}"
    return ""


def has_more_folders(folders: Iterable[str], most: int) -> bool:
    """Whether there are more of them than `most`, each folder on the way to one counted once."""
    known: set[str] = set()
    for folder in folders:
        path = folder
        while path.strip("/") and path not in known:
            known.add(path)
            path = path.rpartition("/")[0]
        if len(known) > most:
            return True
    return False


def require_outside_kernel(path: str) -> None:
    """`CapsuleError` for a path at which nothing of a rank can lie."""
    folder, _, name = path.rpartition("/")
    if not is_usual(folder, name) and (reason := problem(path)):
        raise CapsuleError(f"the capsule names {path[:80]!r}, which {reason}", hint=_HINT)
