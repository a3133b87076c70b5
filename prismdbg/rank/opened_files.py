"""Notes which files the program opens for reading: what a replay must find. Installed before its first line."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

_SYSTEM = ("/proc/", "/sys/", "/dev/", "/run/")
MAX_FILES = 20_000


class OpenedFiles:
    """Collects each path once, as the interpreter's audit events name it; opens by native code are not seen.

    What is installed and what lies in `own_folder`, the run's, is left out. `listener` gets every path found so far
    when it is set, later ones as they come.
    """

    def __init__(self, own_folder: str) -> None:
        self._seen: set[str] = set()
        self._waiting: list[str] = []
        self._listener: Callable[[str], None] | None = None
        self._busy = threading.local()
        installed = {os.path.join(p, "lib") for p in (sys.prefix, sys.base_prefix)}
        ours = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
        self._left_out = (*_SYSTEM, *(f"{folder}/" for folder in (*installed, ours, own_folder)))

    def install(self) -> None:
        sys.addaudithook(self._hook)

    def listen(self, listener: Callable[[str], None]) -> None:
        waiting, self._waiting = self._waiting, []
        self._listener = listener
        for path in waiting:
            listener(path)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or getattr(self._busy, "on", False):
            return
        path, _mode, flags = arguments
        if not isinstance(path, str) or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            return
        self._busy.on = True
        try:
            self._note(path)
        except Exception:  # an exception here would fail the program's open()
            self._busy.failed = True
        finally:
            self._busy.on = False

    def _note(self, path: str) -> None:
        path = _source_of(os.path.abspath(path))
        if path in self._seen or path.startswith(self._left_out):
            return
        if len(self._seen) >= MAX_FILES or not os.path.isfile(path):
            return
        self._seen.add(path)
        if self._listener is not None:
            self._listener(path)
        else:
            self._waiting.append(path)


def _source_of(path: str) -> str:
    """A module's source for its cached byte code: a replay compiles it again."""
    folder, name = os.path.split(path)
    if name.endswith(".pyc") and os.path.basename(folder) == "__pycache__":
        return os.path.join(os.path.dirname(folder), name.split(".")[0] + ".py")
    return path
