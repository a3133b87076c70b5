"""Says how much memory reading whole logs takes, and refuses it if less is free."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from prismdbg.capsule.log.reader import event_segments
from prismdbg.errors import FacilityError
from prismdbg.model.sizes import size
from prismdbg.settings.memory_room import room_bytes

TOLD_BYTES = 500 * 10**6
_FOR_EACH_BYTE = 1.5  # 350 MiB of memory for a million collectives, which are about 250 MB of log


def require_room(run: Path, folders: Sequence[Path], say: Callable[[str], None]) -> None:
    """For the columns of all these logs; `say` is told of more than `TOLD_BYTES`. `FacilityError` where the kernel
    might end this process."""
    needed = int(sum(map(_filled_bytes, folders)) * _FOR_EACH_BYTE)
    if needed <= TOLD_BYTES:
        return
    takes = f"reading the logs of {run} completely takes about {size(needed)} of memory"
    with suppress(OSError):  # the kernel does not say what is free
        if needed > (room := room_bytes(os.getpid())):
            raise FacilityError(
                f"{takes}, but only {size(room)} are free",
                hint="leave out --whole to read only the ends of the logs and a summary of earlier steps",
            )
    say(takes)


def _filled_bytes(folder: Path) -> int:
    """Without the newest segment, which is mostly room."""
    filled = 0
    for _, path in event_segments(folder)[:-1]:
        with suppress(FileNotFoundError):  # dropped meanwhile
            filled += path.stat().st_size
    return filled
