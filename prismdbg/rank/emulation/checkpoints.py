"""Distributed checkpoints of a job of which most ranks are echoes: all have this rank's shards, no plan covers all."""

from __future__ import annotations

import sys
from math import prod
from typing import Any

from prismdbg.rank.program.stderr import say

_PLANNER = "torch.distributed.checkpoint.default_planner"

told: list[str] = []


def accept_partial_plans() -> None:
    """The coordinator plans with what it was told, also where the shards do not add up to the tensor; it says so."""
    planner: Any = sys.modules.get(_PLANNER)
    if planner is not None:
        planner._validate_global_plan = _say_what_is_missing


def _say_what_is_missing(plans: list[Any], metadata: Any) -> list[str]:
    """No error. Chunks of echoed ranks are this rank's own, and are in the plan once."""
    tensors = [value for value in metadata.state_dict_metadata.values() if hasattr(value, "chunks")]
    missing = [value for value in tensors if _elements(value) < prod(value.size)]
    if missing:
        there = sum(_elements(value) for value in tensors)
        share = there / max(sum(prod(value.size) for value in tensors), 1)
        text = (
            f"a distributed checkpoint of {len(plans)} ranks has {share:.2%} of its elements: of {len(missing)} of "
            f"{len(tensors)} tensors, the shards of emulated peers are missing; it cannot be loaded"
        )
        if text not in told:
            told.append(text)
            say(text)
    return []


def _elements(value: Any) -> int:
    """In different chunks."""
    chunks = {(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in value.chunks}
    return sum(prod(sizes) for _, sizes in chunks)
