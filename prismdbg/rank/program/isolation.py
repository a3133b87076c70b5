"""What the debugger computes inside the program leaves no trace in it: no random numbers used, no autograd graph.

Whoever counts operators or allocations asks `is_quiet()` and does not count. A collective issued meanwhile is refused:
the peers would take it for the program's.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from prismdbg.errors import UsageError

_state = threading.local()
_listeners: list[Callable[[bool], None]] = []


def listen(tell: Callable[[bool], None]) -> None:
    """`tell(True)` on a thread that begins to compute for the debugger, `tell(False)` when it ends."""
    _listeners.append(tell)


def is_quiet() -> bool:
    """Whether this thread computes for the debugger."""
    return getattr(_state, "depth", 0) > 0


def refuse_collective(name: str) -> None:
    """Called at the entry of every collective of a replay."""
    if is_quiet():
        raise UsageError(
            f"this would issue a collective ({name}), which only the program may do",
            hint="use this rank's part of the tensor instead",
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Until the end, this thread works for the debugger."""
    with ours(), torch.no_grad(), _disable_current_modes():
        restore = _random_state()
        try:
            yield
        finally:
            for put_back in restore:
                put_back()


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """As `quiet`, for what draws no random numbers: a tenth of the time."""
    with ours(), torch.no_grad(), _disable_current_modes():
        yield


@contextlib.contextmanager
def ours() -> Iterator[None]:
    """Until the end, what this thread does is not the program's: nobody counts it. Cheap; guards nothing else."""
    _state.depth = getattr(_state, "depth", 0) + 1
    if _state.depth == 1:
        for tell in _listeners:
            tell(True)
    try:
        yield
    finally:
        _state.depth -= 1
        if _state.depth == 0:
            for tell in _listeners:
                tell(False)


def _random_state() -> list[Callable[[], Any]]:
    """Functions that put every random generator back: an index into a data set may well draw from one."""
    python, cpu = random.getstate(), torch.get_rng_state()
    restore: list[Callable[[], Any]] = [lambda: random.setstate(python), lambda: torch.set_rng_state(cpu)]
    if torch.cuda.is_initialized():
        cuda = torch.cuda.get_rng_state_all()
        restore.append(lambda: torch.cuda.set_rng_state_all(cuda))
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        state = numpy.get_state()
        restore.append(lambda: numpy.set_state(state))
    return restore
