"""What an experiment tracker gave the program: the id and the name of its run, which a replay gives it again.

Standard library only: a tracker may be imported before torch is.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

from prismdbg.settings.trackers import VALUES

Listener = Callable[[dict[str, Any]], None]

_waiting: list[dict[str, Any]] = []
_listener: Listener | None = None


def watch(wandb: Any) -> None:
    start = wandb.init

    @functools.wraps(start)
    def init(*args: Any, **named: Any) -> Any:
        run = start(*args, **named)
        _tell(_values_of(run))
        return run

    own, name = sys.modules.get(init.__module__), init.__name__
    if getattr(own, name, None) is start:  # pickle looks for it there
        setattr(own, name, init)
    wandb.init = init


def listen(listener: Listener) -> None:
    """Is told of each run, in the order in which they were started, and of those so far."""
    global _listener
    waiting, _waiting[:] = _waiting[:], []
    _listener = listener
    for values in waiting:
        listener(values)


def _tell(values: dict[str, Any]) -> None:
    if _listener is None:
        _waiting.append(values)
    else:
        _listener(values)


def _values_of(run: Any) -> dict[str, Any]:
    """A run that is offline warns of its URL when it is asked."""
    values: dict[str, Any] = {}
    for name in VALUES:
        with contextlib.suppress(Exception):  # another version's: the job does not depend on it
            value = None if name == "url" and run.offline else getattr(run, name)
            if value is None or isinstance(value, str | int):
                values[name] = value
    return values
