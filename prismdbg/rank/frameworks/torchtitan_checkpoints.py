"""torchtitan's CheckpointManager. It knows what a training checkpoint holds: where it would load one is the restore
point, and where it may save one, at the end of each step, the next step begins.

Optimizers and schedulers are registered as torch's own: the `state_dict` of torchtitan's container takes an optimizer
step where none was taken yet.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from prismdbg.errors import UsageError
from prismdbg.rank.frameworks import registration
from prismdbg.rank.recording import restore_point

BY = "torchtitan.CheckpointManager"
_CLASSES = ("BaseCheckpointManager", "CheckpointManager")
_MISSING = ("batches that the program draws ahead of the loader", "what validation and metrics sum up")
_PARTS = {"model": "model", "optimizer": "optimizers", "lr_scheduler": "schedulers"}


def install(module: Any) -> None:
    """On the class that has both methods itself: newer versions have it in a module of its own."""
    kinds = [vars(module)[name] for name in _CLASSES if name in vars(module)]
    for kind in kinds:
        if "load" in vars(kind) and "save" in vars(kind):
            _wrap(kind)


def _wrap(kind: Any) -> None:
    load, save = kind.load, kind.save

    @functools.wraps(load)
    def load_registered(self: Any, *args: Any, **kwargs: Any) -> Any:
        loaded = load(self, *args, **kwargs)
        with registration.guarded(BY):
            if registration.claim(BY) and restore_point.is_awaited():
                registration.register(BY, dict(_objects(self)), _MISSING)
                registration.begin_step(registration.current_step())  # no optimizer counts from here on
        return loaded

    @functools.wraps(save)
    def save_registered(self: Any, curr_step: int, *args: Any, **kwargs: Any) -> Any:
        saved = save(self, curr_step, *args, **kwargs)
        with registration.guarded(BY):
            if registration.claim(BY) and not restore_point.is_awaited():
                registration.begin_step(curr_step)
        return saved

    kind.load, kind.save = load_registered, save_registered


def _objects(manager: Any) -> Iterator[tuple[str, Any]]:
    states = getattr(manager, "states", None)
    if states is None:
        raise UsageError("it is disabled, or of a kind that does not keep the states itself")
    for name, thing in states.items():
        parts = getattr(thing, _PARTS.get(name, ""), None)
        if parts is not None:
            yield from registration.numbered(name, list(parts)).items()
        elif thing is not None:
            yield name, thing
