"""Where a program would load a training checkpoint: what it calls as `prismdbg.restore_point`, and who answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Registered = dict[str, Any]
Handler = Callable[[Registered], int | None]

_handler: Handler | None = None
_recorded: Callable[[str], Any] | None = None
_give_up: Callable[[str], None] | None = None
_step = 0
_is_reached = False


def answer_with(
    handler: Handler,
    *,
    recorded: Callable[[str], Any] | None = None,
    step: int = 0,
    give_up: Callable[[str], None] | None = None,
) -> None:
    """recorded: in a replay, the recorded state of an object by its name. step: there, the step of the snapshot.
    give_up: told why nothing is registered."""
    global _handler, _recorded, _step, _give_up, _is_reached
    _handler, _recorded, _step, _give_up, _is_reached = handler, recorded, step, give_up, False


def reached(objects: Registered) -> int | None:
    """The step to go on from, in a replay; None where the program begins at its own beginning."""
    global _is_reached
    _is_reached = True
    return _handler(objects) if _handler is not None else None


def is_awaited() -> bool:
    """Whether somebody wants to know the state, and nobody has registered it."""
    return _handler is not None and not _is_reached


def is_replay() -> bool:
    return _recorded is not None


def recorded(name: str) -> Any:
    """In a replay what `state_dict` of the object of that name gave when the snapshot was taken; else None. For who
    has to know before its restore point where it is to go on."""
    return _recorded(name) if _recorded is not None else None


def recorded_step() -> int:
    """In a replay, the step of the snapshot."""
    return _step


def await_no_more() -> None:
    """Nobody wants to know the state any more."""
    global _is_reached
    _is_reached = True


def give_up(why: str) -> None:
    """The state is not registered, or no longer as it should be. Said once by who answers."""
    await_no_more()
    if _give_up is not None:
        _give_up(why)


def unfit(objects: Registered) -> str:
    """What is wrong with the registered objects, in a few words; empty where nothing is."""
    if not objects:
        return "no object is registered"
    for name, thing in objects.items():
        if not (callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))):
            return f"{name} has no state_dict and load_state_dict"
    return ""
