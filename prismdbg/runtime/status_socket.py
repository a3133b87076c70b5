"""How a starter that has no more rights than the rank says what happens: on a connection that the rank cannot have.

The starter connects before there is a rank, and the first connection is the only one. What it says is written into the
status file here, by this process: the rank can read that file and not write it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

from prismdbg.runtime.starter_spec import STATUS, STATUS_SOCKET

_READ_BYTES = 1 << 16


class StatusSocket:
    """Listens until the starter has connected. Close it. owner: user and group of the starter."""

    def __init__(self, folder: Path, owner: tuple[int, int]) -> None:
        self._path, self._status = folder / STATUS_SOCKET, folder / STATUS
        self._said: socket.socket | None = None
        self._lock = threading.Lock()
        self._listening: socket.socket | None = socket.socket(socket.AF_UNIX)
        try:
            _bind(self._listening, folder)
            self._path.chmod(0o600)
            if os.geteuid() == 0:
                os.chown(self._path, *owner)
            self._listening.listen(1)
            self._listening.setblocking(False)
        except BaseException:
            self.close()
            raise

    def take(self) -> None:
        """Brings what was said since the last time into the status file."""
        with self._lock, contextlib.suppress(BlockingIOError, ConnectionResetError):
            if self._listening is not None:
                self._said, _ = self._listening.accept()
                self._said.setblocking(False)
                self._stop_listening()
            while self._said is not None and (data := self._said.recv(_READ_BYTES)):
                with self._status.open("ab") as file:
                    file.write(data)

    def close(self) -> None:
        with self._lock:
            self._stop_listening()
            if self._said is not None:
                self._said.close()
                self._said = None

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
            self._path.unlink(missing_ok=True)


def _bind(listening: socket.socket, folder: Path) -> None:
    """The address of a socket may have 107 bytes, the folder's path more: so it is named by its descriptor."""
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        listening.bind(f"/proc/self/fd/{descriptor}/{STATUS_SOCKET}")
    finally:
        os.close(descriptor)
