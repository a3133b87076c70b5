"""The gradient buckets of DistributedDataParallel: it orders them anew in its second iteration, once, by what the first
backward pass did. A program that begins in the middle of a run has to begin with that order."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from prismdbg.rank.recording.instances import Instances

Buckets = tuple[tuple[int, ...], ...]
_MADE = Instances()


def watch() -> None:
    """Before the program makes its modules."""
    _MADE.watch(DistributedDataParallel)


def modules_of(objects: Iterable[Any]) -> list[Any]:
    """Every DDP module of the process that has a parameter of the objects, in the order of these parameters: a program
    may register what it wrapped, or a part of that. Looks through all objects of the process, for one that was copied
    was not made."""
    modules = [thing for thing in objects if isinstance(thing, torch.nn.Module)]
    parameters = [parameter for module in modules for parameter in module.parameters()]
    places = {id(parameter): place for place, parameter in reversed([*enumerate(parameters)])}
    found = []
    known = {id(module): module for module in (*instances_of(DistributedDataParallel), *_MADE.living())}
    for module in known.values():
        its_places = [places[id(one)] for one in module.parameters() if id(one) in places]
        if its_places:
            found.append((min(its_places), module))
    return [module for _, module in sorted(found, key=lambda each: each[0])]


def instances_of(kind: type) -> list[Any]:
    """By their types alone: some objects warn of being looked at. Not by `issubclass`, which compares the program's
    classes where `kind` has an abstract base, as DDP has: a metaclass may refuse that."""
    is_one = functools.partial(type.__subclasscheck__, kind)
    return [thing for thing in gc.get_objects() if is_one(type(thing))]


def order_of(module: Any) -> Buckets | None:
    """Its parameters by bucket; empty where it never orders them anew, None while it is still to do so."""
    if module.find_unused_parameters and not module.static_graph:
        return ()
    told = str(module._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices", ""))
    return tuple(tuple(map(int, bucket.split())) for bucket in told.split(",")) if told else None
