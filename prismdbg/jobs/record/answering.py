"""RUN may lie on a file server. Where that stops to answer, nobody waits for it for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from prismdbg.settings.file_system import is_local

SILENT_S = 15.0
SAID_AFTER_S = 1.0
LONGEST_S = 1800.0  # what the job read may lie on other servers, which do not answer either


def ends_while_answering(thread: Thread, folder: Path, still_waits: Callable[[], None]) -> bool:
    """Waits for the thread, which works in the folder; `still_waits` is called once, after a second. False where the
    folder's file system is silent for too long, or the thread takes longer than `LONGEST_S`."""
    thread.join(SAID_AFTER_S)
    if not thread.is_alive():
        return True
    still_waits()
    if is_local(folder):
        thread.join(LONGEST_S)
        return not thread.is_alive()
    answered_s = [time.monotonic()]

    def ask() -> None:
        while thread.is_alive():
            with suppress(OSError):  # an answer, too
                folder.stat()
                os.statvfs(folder)  # no kernel answers this one from memory
            answered_s[0] = time.monotonic()
            thread.join(1.0)

    Thread(target=ask, name="prismdbg-asking", daemon=True).start()
    began_s = time.monotonic()
    while thread.is_alive() and (now_s := time.monotonic()) - answered_s[0] < SILENT_S and now_s - began_s < LONGEST_S:
        thread.join(0.1)
    return not thread.is_alive()
