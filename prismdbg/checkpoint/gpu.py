"""The state of a rank on NVIDIA GPUs, which CRIU does not see: in the rank's own memory while it is dumped.

`images/starter/gpu_state.py` moves it, as a program of its own, which moves it back when we are gone, however we end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prismdbg.checkpoint.engine import GpuPart
from prismdbg.checkpoint.gpu_facts import (
    INSTEAD,
    driver_version,
    gpus_of,
    held_bytes,
    loads_driver,
    open_devices,
    tree_of,
)
from prismdbg.checkpoint.gpu_holder import Holder
from prismdbg.errors import FacilityError
from prismdbg.model.sizes import size
from prismdbg.settings.memory_room import room_bytes

MOVE_BOUND_S = 90.0
_HEADROOM = 1.1


@contextmanager
def in_memory(pid: int, *, timeout_s: float, dump_s: float = 0.0) -> Iterator[GpuPart | None]:
    """The state of the process and its children on GPUs is in their memory meanwhile, and afterwards back, also where
    this process is killed or stopped. None, and nothing is done, where they use none. timeout_s: for moving it there;
    dump_s: for what is done meanwhile, if that may take longer.

    `CheckpointError` where the driver refuses; the rank goes on then. One where the state cannot be moved back says so.
    """
    pids = [one for one in tree_of(pid) if loads_driver(one)]
    if not pids:
        yield None
        return
    require_room(pid)
    gpus = gpus_of(pids)
    holder = Holder([pid, *(one for one in pids if one != pid)], timeout_s, timeout_s + max(dump_s, timeout_s))
    try:
        held = holder.held()
        yield GpuPart(pids=held, driver=driver_version(), gpus=gpus) if held else None
        holder.require_held()
    finally:
        holder.give_back()


def known_bytes(pid: int) -> int:
    """What the process and its children have on GPUs; 0 where nobody says it."""
    return held_bytes(pid) or 0


def require_room(pid: int) -> int:
    """What the process and its children have on GPUs, in bytes. `FacilityError` where the memory of the machine, or of
    a control group around the process, might not hold it: the kernel would end the rank."""
    held = held_bytes(pid)
    if held is None:
        raise FacilityError(
            f"cannot determine how much GPU memory process {pid} uses (nvidia-smi is missing or fails); a checkpoint "
            "needs as much free host memory",
            hint=f"install NVIDIA's driver with nvidia-smi, or {INSTEAD}",
        )
    if (needed := int(held * _HEADROOM)) > (room := room_bytes(pid)):
        raise FacilityError(
            f"a checkpoint of process {pid} needs {size(needed)} of host memory for its GPU state, and {size(room)} "
            "is free",
            hint=INSTEAD,
        )
    return held


def is_used(pid: int) -> bool:
    """Whether the process or its children have a GPU open."""
    return any(loads_driver(one) and open_devices(one) for one in tree_of(pid))
