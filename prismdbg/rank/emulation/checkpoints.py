"""Distributed checkpoints of a job of which most ranks are echoes: all have this rank's shards, no plan covers all."""

from __future__ import annotations

import sys
from typing import Any

_PLANNER = "torch.distributed.checkpoint.default_planner"


def accept_partial_plans() -> None:
    """The coordinator plans with what it was told, also where the shards do not add up to the tensor."""
    planner: Any = sys.modules.get(_PLANNER)
    if planner is not None:
        planner._validate_global_plan = _no_errors


def _no_errors(*_: Any) -> list[str]:
    return []
