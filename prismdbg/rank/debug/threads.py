"""The program's other threads while one of them stands at a stop: some may run on meanwhile."""

from __future__ import annotations

import sys
import threading
from typing import Any

from prismdbg.expr.objects import builtin, of_name, vars_of
from prismdbg.protocol.values import MAIN_THREAD, MAX_THREADS
from prismdbg.rank.program.frames import stack_of
from prismdbg.rank.program.isolation import quiet

OURS = "prismdbg-"  # begins the names of prismdbg's own threads
MAX_FRAMES = 200
MAX_NAME = 200


def other_threads() -> list[dict[str, Any]]:
    """Each with its number, its name and its frames, innermost first: all but the calling one, and prismdbg's own.
    Threads that run no Python are not known. The name is empty where Python did not start the thread."""
    with quiet():
        here, known = threading.get_ident(), dict(threading._active)  # type: ignore[attr-defined]
        named = ((number, _name(known.get(number)), frame) for number, frame in sys._current_frames().items())
        found = [(n, name, frame) for n, name, frame in named if n != here and not name.startswith(OURS)]
        return [
            {"thread": number, "name": name, "frames": stack_of(frame)[:MAX_FRAMES]}
            for number, name, frame in found[:MAX_THREADS]
        ]


def all_stacks() -> list[dict[str, Any]]:
    """Of all threads but prismdbg's own, also while the program runs. The main one is the first and is called
    MainThread, whatever the program calls it; the name of one that Python did not start is its number."""
    main = threading.main_thread().ident
    names = {thread.ident: thread.name for thread in threading.enumerate()} | {main: MAIN_THREAD}
    found = [(names.get(ident, f"thread {ident}"), ident, frame) for ident, frame in sys._current_frames().items()]
    return [
        {"name": name, "frames": stack_of(frame)}
        for name, ident, frame in sorted(found, key=lambda thread: thread[1] != main)
        if not name.startswith(OURS)
    ]


def _name(thread: Any) -> str:
    """As the thread holds it: a class of the program's own is asked nothing."""
    name = builtin(of_name(vars_of(thread) or {}, "_name", ""))
    return name[:MAX_NAME] if type(name) is str else ""
