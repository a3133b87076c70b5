"""What every adapter does: it asks whether it is the one that registers, says what it registers, and harms nobody."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch.distributed as dist

from prismdbg.errors import PrismError
from prismdbg.rank.program.interruptions import is_for_the_program
from prismdbg.rank.program.stderr import say
from prismdbg.rank.recording import restore_point
from prismdbg.rank.recording.steps import COUNTER

_owner = ""


def claim(by: str) -> bool:
    """Whether `by` registers this process's state: the first adapter that asks, where the program itself did not. A
    framework that is built on another one asks before it."""
    global _owner
    if not _owner and restore_point.is_awaited():
        _owner = by
    return _owner == by


def is_claimable(by: str) -> bool:
    """Whether `claim` would give it to `by`; nothing is claimed."""
    return _owner in ("", by) and restore_point.is_awaited()


def register(by: str, objects: restore_point.Registered, missing: Sequence[str]) -> int | None:
    """The restore point. `missing`: what the replay may depend on, and nobody can register here."""
    if _is_first_rank():
        say(f"{by}: registered: {', '.join(objects)}; {not_registered(missing)}")
    return restore_point.reached(objects)


def another_training(by: str) -> None:
    """One begins that is not the registered one. Steps are counted on."""
    restore_point.give_up(f"{by}: a second training begins, whose state is not registered")


def _is_first_rank() -> bool:
    """Lightning's own launcher gives its ranks no RANK, so the job's group is asked first."""
    if dist.is_available() and dist.is_initialized():
        return int(dist.get_rank()) == 0
    return os.environ.get("RANK", "0") == "0"


def not_registered(missing: Sequence[str]) -> str:
    return f"not registered: {'; '.join(missing) or 'nothing that is known'}"


def numbered(name: str, things: Sequence[Any]) -> dict[str, Any]:
    """`optimizer`, or `optimizer0` and `optimizer1` where there are several."""
    return {f"{name}{number if len(things) > 1 else ''}": thing for number, thing in enumerate(things)}


def current_step() -> int:
    return COUNTER.step


def begin_step(number: int) -> None:
    """As `prismdbg.step(number)` at the top of the program's loop."""
    COUNTER.mark(number)


@contextlib.contextmanager
def guarded(by: str) -> Iterator[None]:
    """In a recorded job what fails here ends the snapshots, and nothing else; a replay cannot go on without."""
    try:
        yield
    except Exception as error:
        if restore_point.is_replay() or is_for_the_program(error):
            raise
        restore_point.give_up(f"{by}: {error if isinstance(error, PrismError) else repr(error)}")
