"""Gloo's own threads at the program's end.

A thread of torch's gloo backend may be the last to hold a tensor of a collective that is over: whoever waited for it
goes on before the thread has let go. Freeing the tensor then takes Python's lock, and once the interpreter is torn
down, asking for it ends the thread, inside a destructor: "terminate called without an active exception", SIGABRT. That
is torch's (2.13) and happens without prismdbg, too, but what a recorder does at a collective's end makes it likelier.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from prismdbg.settings.process_stat import text_of

_NAME = "pt_gloo_runloop"  # as torch names them
BOUND_S = 0.5
_LOOK_S = 0.001
_QUIET_LOOKS = 3  # one may fall into the instant in which a thread has asked for the lock


def let_go() -> None:
    """Returns once these threads do nothing, or after `BOUND_S`. They get Python's lock meanwhile."""
    deadline = time.monotonic() + BOUND_S
    quiet = 0
    while states := list(_states()):
        quiet = quiet + 1 if all(state == "S" for state in states) else 0
        if quiet == _QUIET_LOOKS or time.monotonic() >= deadline:
            return
        time.sleep(_LOOK_S)


def _states() -> Iterator[str]:
    """The kernel's letter for each of them: S where it sleeps (proc_pid_stat(5))."""
    try:
        for task in Path("/proc/self/task").iterdir():
            name, _, rest = text_of(task / "stat").partition("(")[2].rpartition(")")
            if name == _NAME:
                yield rest.split()[0]
    except OSError:  # a thread ended meanwhile: the next look tells
        yield "?"
