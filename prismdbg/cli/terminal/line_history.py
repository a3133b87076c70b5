"""The lines typed in the line debugger, from one session to the next: a private file in the user's state folder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from prismdbg.model.typed_path import home

MAX_LINES = 1000
MAX_LINE_BYTES = 4096


def history_file() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or home() / ".local" / "state") / "prismdbg" / "debug-history"


class LineHistory:
    """A history that cannot be read or written is none: the session goes on without it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[str]:
        """The newest lines, the oldest first. A file that has become too long is cut to them."""
        try:
            lines = [line for line in self._path.read_text("utf-8", "replace").split("\n") if line]
        except OSError:
            return []
        newest = lines[-MAX_LINES:]
        if len(newest) < len(lines):
            self._write("".join(f"{line}\n" for line in newest), os.O_TRUNC)
        return newest

    def add(self, line: str) -> None:
        if line.strip() and len(line.encode("utf-8", "replace")) <= MAX_LINE_BYTES:
            self._write(f"{line}\n", os.O_APPEND)

    def _write(self, text: str, how: int) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, 0o600)
                file.write(text.encode("utf-8", "replace"))
