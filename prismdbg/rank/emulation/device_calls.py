"""Which calls a backend runs on a stream of the device, so that the host does not wait for them."""

from __future__ import annotations

import os
from functools import cache

import torch
from torch.distributed import distributed_c10d as c10d

from prismdbg.errors import UsageError
from prismdbg.model.ops import Movement
from prismdbg.rank.c10d.call import Call

CUDA = "cuda"
_BLOCKING_WAIT = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")  # the later one counts where the first is not set
_TRUE, _FALSE = frozenset({"y", "yes", "1", "t", "true"}), frozenset({"n", "no", "0", "f", "false"})
_ON_THE_HOST = frozenset({"gloo", "mpi"})  # they bring tensors into the host's memory, and their waits hold the host


@cache
def is_blocking_wait() -> bool:
    """Whether the host, too, waits for what NCCL does: read as torch reads it, which refuses other values."""
    name = next((name for name in _BLOCKING_WAIT if name in os.environ), None)
    if name is None:
        return False
    value = os.environ[name]
    if value.lower() not in _TRUE | _FALSE:
        raise UsageError(
            f"{name} is {value!r}, which torch's NCCL backend refuses", hint=f"unset it, or give it 1 or 0: {name}=1"
        )
    return value.lower() in _TRUE


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
