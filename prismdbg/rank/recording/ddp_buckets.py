"""The gradient buckets of DistributedDataParallel: it orders them anew in its second iteration, once, by what the first
backward pass did. A program that begins in the middle of a run has to begin with that order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

Buckets = tuple[tuple[int, ...], ...]


def modules_of(objects: Iterable[Any]) -> Iterator[Any]:
    """Every DDP module in the objects, each once."""
    seen: set[int] = set()
    for thing in objects:
        for module in thing.modules() if isinstance(thing, torch.nn.Module) else ():
            if isinstance(module, DistributedDataParallel) and id(module) not in seen:
                seen.add(id(module))
                yield module


def order_of(module: Any) -> Buckets | None:
    """Its parameters by bucket; empty where it never orders them anew, None while it is still to do so."""
    if module.find_unused_parameters and not module.static_graph:
        return ()
    told = str(module._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices", ""))
    return tuple(tuple(map(int, bucket.split())) for bucket in told.split(",")) if told else None
