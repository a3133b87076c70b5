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
_TOO_LONG = f"is not complete after {LONGEST_S / 60:.0f} minutes"


def why_unfinished(thread: Thread, folder: Path, still_waits: Callable[[], None]) -> str:
    """Waits for the thread, which works in the folder, and says what became of the folder: nothing where the thread has
    ended, else that its file system is silent for too long, or that the thread took longer than `LONGEST_S`.
    `still_waits` is called once, after a second."""
    thread.join(SAID_AFTER_S)
    if not thread.is_alive():
        return ""
    still_waits()
    if is_local(folder):
        thread.join(LONGEST_S)
        return _TOO_LONG if thread.is_alive() else ""
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
    if not thread.is_alive():
        return ""
    return _TOO_LONG if now_s - answered_s[0] < SILENT_S else "does not answer"
