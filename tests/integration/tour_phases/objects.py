"""Collectives on Python objects."""

import os
from typing import Any

import torch.distributed as dist

from tour_phases.place import Place


def all_gather_object(at: Place) -> list[Any]:
    objects: list[Any] = [None] * at.world
    dist.all_gather_object(objects, {"rank": at.rank, "text": "x" * (at.rank + 1)})
    return objects


def broadcast_object_list(at: Place) -> list[Any]:
    objects = [{"a": 1}, "text"] if at.rank == 0 else [None, None]
    dist.broadcast_object_list(objects, 0)
    return objects


def gather_object(at: Place) -> list[Any] | None:
    objects: list[Any] | None = [None] * at.world if at.rank == 3 else None
    dist.gather_object({"rank": at.rank}, objects, 3)
    return objects


def scatter_object_list(at: Place) -> list[Any]:
    objects: list[Any] = [None]
    dist.scatter_object_list(objects, [{"i": i} for i in range(at.world)] if at.rank == 0 else None, 0)
    return objects


def send_object_list(at: Place) -> list[Any] | None:
    if at.rank % 2 == 0:
        dist.send_object_list([{"from": at.rank}, (1, 2)], at.rank + 1)
        return None
    objects: list[Any] = [None, None]
    dist.recv_object_list(objects, at.rank - 1)
    return objects


def pids(at: Place) -> bool:
    """Objects that no two runs have in common: a replay must take them from the record, and not mind its own."""
    objects: list[Any] = [None] * at.world
    dist.all_gather_object(objects, (os.getpid(), "x"))
    at.arrivals["pids of others"] = [p for i, p in enumerate(objects) if i != at.rank]
    return len(set(objects)) == at.world
