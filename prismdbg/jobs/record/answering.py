"""RUN may lie on a file server. Where that stops to answer, nobody waits for it for ever."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

from prismdbg.rank.recording.outlet import is_local

SILENT_S = 15.0


def ends_while_answering(thread: Thread, folder: Path) -> bool:
    """Waits for the thread, which works in the folder. False where the folder's file system is silent for too long."""
    if is_local(folder):
        thread.join()
        return True
    answered_s = [time.monotonic()]

    def ask() -> None:
        while thread.is_alive():
            with suppress(OSError):  # an answer, too
                folder.stat()
                os.statvfs(folder)  # no kernel answers this one from memory
            answered_s[0] = time.monotonic()
            thread.join(1.0)

    Thread(target=ask, name="prismdbg-asking", daemon=True).start()
    while thread.is_alive() and time.monotonic() - answered_s[0] < SILENT_S:
        thread.join(0.1)
    return not thread.is_alive()
