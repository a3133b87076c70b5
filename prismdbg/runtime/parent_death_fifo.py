"""A FIFO whose other end the starter watches: when its holder dies or lets go, the replay ends with it."""

from __future__ import annotations

import os
from pathlib import Path

from prismdbg.runtime.starter_spec import LIFELINE


class ParentDeathFifo:
    """Held open by the client for as long as the replay may live. Not inherited by other programs.

    owner: user and group of a starter that runs as somebody else.
    """

    def __init__(self, folder: Path, *, owner: tuple[int, int] | None = None) -> None:
        path = folder / LIFELINE
        os.mkfifo(path, 0o600)
        self._fd: int | None = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # also for reading, or the open would wait
        os.fchmod(self._fd, 0o400)  # a rank that held it, too, would outlive its client
        if owner is not None:
            os.fchown(self._fd, *owner)

    def let_go(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
