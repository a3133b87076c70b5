"""What a program keeps beside the training state that it registered, by name: looked for at its restore point."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import torch

from prismdbg.expr.objects import vars_of
from prismdbg.rank.program.frames import locals_of, own_frames

_KNOWN = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
_DEPTH, _MOST = 4, 100_000
_SHOWN = 20


def unregistered(objects: Mapping[str, Any], frame: FrameType | None) -> list[str]:
    """`schedule (StepLR)`: objects that have a state, and are no part of a registered one. Those without a
    name are told once for each type. `frame`: the caller's."""
    known = _inside(objects)
    parameters = {id(p) for thing in objects.values() if isinstance(thing, torch.nn.Module) for p in thing.parameters()}
    found: dict[int, str] = {}
    for name, value in _variables(frame):
        if id(value) not in known and id(value) not in found and _has_state(value, parameters):
            found[id(value)] = f"{name} ({type(value).__name__})"
    for value in gc.get_objects():  # by its type alone: some objects warn of being looked at
        if issubclass(type(value), _KNOWN) and id(value) not in known and id(value) not in found:
            found[id(value)] = f"an object of type {type(value).__name__}"
    return list(dict.fromkeys(found.values()))[:_SHOWN]


def _variables(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """Of the program's own frames, and of the objects that these name."""
    for each in own_frames(frame):
        for name, value in [*locals_of(each).items(), *dict.items(each.f_globals)]:
            if type(name) is str and not name.startswith("__"):
                yield name, value
                if name == "self":
                    yield from ((f"self.{under}", item) for under, item in (vars_of(value) or {}).items())


def _has_state(value: Any, parameters: set[int]) -> bool:
    if isinstance(value, type):
        return False
    if isinstance(value, torch.nn.Module):
        own = [id(p) for p in value.parameters()]
        return any(p not in parameters for p in own) or (not own and any(True for _ in value.buffers()))
    if isinstance(value, torch.Generator):
        return value is not torch.default_generator
    return all(callable(getattr(type(value), name, None)) for name in ("state_dict", "load_state_dict"))


def _inside(objects: Mapping[str, Any]) -> set[int]:
    """The registered objects and what they hold."""
    found: set[int] = set()
    level = list(objects.values())
    for _ in range(_DEPTH):
        level = [value for value in level if id(value) not in found][:_MOST]
        found |= {id(value) for value in level}
        level = [item for value in level for item in _held(value)]
    return found


def _held(value: Any) -> list[Any]:
    if isinstance(value, torch.nn.Module):
        return [*value.modules(), *(vars_of(value) or {}).values()]
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    held = list((vars_of(value) or {}).values())
    if isinstance(value, torch.optim.lr_scheduler.LRScheduler):  # whose state is without that of its optimizer
        return [item for item in held if not isinstance(item, torch.optim.Optimizer)]
    return held
