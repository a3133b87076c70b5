"""What a file gained since one last looked."""

from __future__ import annotations

import os
from pathlib import Path

MAX_BYTES = 64 << 10


class OutputTail:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0

    def grown(self) -> str:
        """At most `MAX_BYTES` of it, the newest. A file that became shorter is read on from its new end."""
        try:
            with self._path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                self._read_bytes = min(self._read_bytes, end)
                start = max(self._read_bytes, end - MAX_BYTES)
                file.seek(start)
                data = file.read(end - start)
        except OSError:
            return ""
        skipped = start - self._read_bytes
        self._read_bytes = start + len(data)
        return (f"... {skipped} bytes left out\n" if skipped else "") + data.decode("utf-8", "replace")
