"""Small files of the kernel that are read again and again: opened once, for opening costs more than reading."""

from __future__ import annotations

import os
import resource
from functools import cache
from pathlib import Path

_MOST_BYTES = 1 << 16
_MOST_DESCRIPTORS = 1 << 16
_SPARE = 64  # descriptors that are left for files that are open for a moment


class OpenFile:
    """`read` raises `OSError` where there is no such file any more; it is opened again at the next call, as it is where
    the process has no descriptors left to keep."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def read(self) -> bytes:
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.pread(self._descriptor, _MOST_BYTES, 0)
        except OSError:
            self.close()
            raise
        if self._descriptor >= kept_below():  # the kernel gives the lowest number that is free
            self.close()
        return text

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@cache
def kept_below() -> int:
    """Descriptors with these numbers are kept. Asks the kernel once: `raise_limit` comes before."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (_MOST_DESCRIPTORS if limit == resource.RLIM_INFINITY else limit) - _SPARE


def raise_limit() -> None:
    """Of open files, as far as it may be: each thread of a rank is one, and 1,024 is what shells grant."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def because(error: OSError, path: Path) -> str:
    """Why a sensor is not available."""
    return f"{path}: {error.strerror or error}"


def text_of(path: Path) -> str:
    """A name that the kernel or the firmware gives to a sensor, in any encoding; `unnamed` where there is none."""
    try:
        return path.read_text("utf-8", errors="replace").strip()[:40]
    except OSError:
        return "unnamed"
