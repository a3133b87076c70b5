"""Which calls a backend runs on a stream of the device, so that the host does not wait for them."""

from __future__ import annotations

import os

import torch
from torch.distributed import distributed_c10d as c10d

from prismdbg.model.ops import Movement
from prismdbg.rank.c10d.call import Call

CUDA = "cuda"
BLOCKING_WAIT = os.environ.get("TORCH_NCCL_BLOCKING_WAIT", os.environ.get("NCCL_BLOCKING_WAIT", "0")) == "1"
_ON_THE_HOST = frozenset({"gloo", "mpi"})  # they bring tensors into the host's memory, and their waits hold the host


def runs_on_stream(call: Call) -> bool:
    """NCCL's, but for a barrier, which holds the host."""
    if torch.device(call.device).type != CUDA or call.spec.movement is Movement.BARRIER:
        return False
    return _backend_of(call.group) not in _ON_THE_HOST


def _backend_of(group: object) -> str:
    """For tensors on CUDA; empty where the group names none. Its backend here is torch's fake one in any case."""
    config = str(c10d._world.pg_backend_config.get(group, ""))
    parts = dict(part.split(":", 1) for part in config.split(",") if ":" in part)
    return parts.get(CUDA, "" if parts else config)
