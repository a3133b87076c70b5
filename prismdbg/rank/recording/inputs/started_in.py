"""The working directory that the program was started in, and its variables. Imported before its first line: it may go
elsewhere, and set others."""

from __future__ import annotations

import os


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return os.readlink("/proc/self/cwd").removesuffix(" (deleted)")


folder = _folder()
variables = frozenset(os.environ)
