"""Exceptions that came to the top and did not end their program."""

from __future__ import annotations

from prismdbg.capsule.log.events import Note
from prismdbg.capsule.log.notes import exit_codes
from prismdbg.log.columns import LogColumns


def was_outlived(log: LogColumns, note: Note) -> bool:
    """Whether its program went on: past one of a thread, as that of a library which reports to a server, to another
    collective; past one that it had only printed (`sys.excepthook`) to another step, or to an end with exit code 0, for
    what is called at its end (`atexit`) may issue collectives. Nothing else that a rank says is outlived."""
    if note.kind != "incident":
        return False
    if note.data.get("thread"):
        return bool((log.begun_ns > note.time_ns).any())
    return any(mark.time_ns > note.time_ns for mark in reversed(log.steps)) or 0 in exit_codes(log.notes)
