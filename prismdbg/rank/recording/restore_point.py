"""Where a program would load a training checkpoint: what it calls as `prismdbg.restore_point`, and who answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Registered = dict[str, Any]
Handler = Callable[[Registered], int | None]

_handler: Handler | None = None


def answer_with(handler: Handler) -> None:
    global _handler
    _handler = handler


def reached(objects: Registered) -> int | None:
    """The step to go on from, in a replay; None where the program begins at its own beginning."""
    return _handler(objects) if _handler is not None else None


def unfit(objects: Registered) -> str:
    """What is wrong with the registered objects, in a few words; empty where nothing is."""
    if not objects:
        return "no object is registered"
    for name, thing in objects.items():
        if not (callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))):
            return f"{name} has no state_dict and load_state_dict"
    return ""
