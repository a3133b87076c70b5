"""What a checkpoint will take, said before it is spent, and what checkpoints cost a job."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from prismdbg.checkpoint.gpu import require_room
from prismdbg.errors import FacilityError, RankLost

_MIB = 1 << 20
_HEADROOM = 1.1
_IN_IMAGE = re.compile(r"^(?:Anonymous|Swap|Pss_Shmem|Private_Hugetlb): +([0-9]+) kB$", re.MULTILINE)
SPARE_BYTES = 1 << 30  # of a disk that others write to meanwhile: a full one would harm more than a checkpoint helps


def image_bytes(pid: int) -> int:
    """About what an image of the process and its children holds."""
    try:
        size, children = _bytes_in_image(pid), psutil.Process(pid).children(recursive=True)
    except (OSError, psutil.Error) as error:
        raise RankLost(
            f"process {pid} cannot be examined: {error}", hint="run `prismdbg status RUN`: the process may have ended"
        ) from error
    for child in children:
        with suppress(OSError):  # it has ended meanwhile
            size += _bytes_in_image(child.pid)
    return size


def _bytes_in_image(pid: int) -> int:
    return bytes_of(Path(f"/proc/{pid}/smaps_rollup").read_text())


def bytes_of(rollup: str) -> int:
    """What an image holds of the process with this `smaps_rollup`: pages of its own, which are in the image of each
    process that shares them since a fork, also where they are in swap; and its part of shared memory, most of which
    has no name any more, and is in the image for that."""
    return sum(int(size) << 10 for size in _IN_IMAGE.findall(rollup))


def predict_image(
    pid: int, *folders: Path, spare_bytes: int = 0, hint: str = "free some space, or write elsewhere with -o"
) -> str:
    """One line with the predicted size; `FacilityError` where a folder's disk has no room for it, or the memory for
    what the rank has on GPUs. spare_bytes: are to stay free."""
    size = require_room(pid) + image_bytes(pid)
    for folder in folders:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        if free < size * _HEADROOM + spare_bytes:
            stays = f", of which {spare_bytes // _MIB} MiB must stay free" if spare_bytes else ""
            raise FacilityError(
                f"the checkpoint will take about {size // _MIB} MiB, and {existing} has {free // _MIB} MiB free{stays}",
                hint=hint,
            )
    return f"the checkpoint will take about {size // _MIB} MiB"


def checkpoint_slowdown(pauses_ns: Sequence[int], every: int, step_ns: int) -> float:
    """How much longer the job takes: one round of checkpoints stands still once per rank, every `every` steps."""
    return sum(pauses_ns) / (every * step_ns) if every and step_ns else 0.0
