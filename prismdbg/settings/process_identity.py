"""Which process this is, for those that may be in another namespace or on another machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prismdbg.settings.boot import boot_id
from prismdbg.settings.process_stat import start_ticks


def this_process() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "started_ticks": start_ticks(os.getpid()),
        "boot_id": boot_id(),
        "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
    }


def is_seen(told: Mapping[str, Any]) -> bool:
    """Whether the process that said so has the same PID here. `KeyError` where it said something else."""
    here = this_process()
    return all(told[name] == here[name] for name in ("boot_id", "pid_namespace"))
