"""Small files of the kernel that are read again and again: opened once, for opening costs more than reading."""

from __future__ import annotations

import os
from pathlib import Path

_MOST_BYTES = 1 << 16


class OpenFile:
    """`read` raises `OSError` where there is no such file any more; it is opened again at the next call."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def read(self) -> bytes:
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(self._descriptor, _MOST_BYTES, 0)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def because(error: OSError, path: Path) -> str:
    """Why a sensor is not available."""
    return f"{path}: {error.strerror or error}"


def text_of(path: Path) -> str:
    """A name that the kernel or the firmware gives to a sensor, in any encoding; `unnamed` where there is none."""
    try:
        return path.read_text("utf-8", errors="replace").strip()[:40]
    except OSError:
        return "unnamed"
