"""Options of the commands that replay: how much of this machine the replay may take."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from prismdbg.cli.click_errors import WrongValue
from prismdbg.cli.options.param_types import size
from prismdbg.runtime.limits import OPTIONS, Asked

_USUAL = "[default: half of the machine's memory, or twice the recorded peak plus 4 GiB if that is larger and free]"


def limits(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; `command` gets them as `limits`."""

    @wraps(command)
    def limited(
        *arguments: Any,
        limit_memory: int | None,
        limit_pids: int | None,
        limit_shm: int | None,
        limit_disk: int | None,
        **others: Any,
    ) -> Any:
        asked = Asked(memory_bytes=limit_memory, processes=limit_pids, shared_bytes=limit_shm, disk_bytes=limit_disk)
        return command(*arguments, limits=asked, **others)

    for name, kind, metavar, text in reversed(_ALL):
        limited = click.option(OPTIONS[name], type=kind, metavar=metavar, help=text)(limited)
    return limited


def _room(text: str) -> int:
    found = size(text)
    if found < 1 << 20:
        raise WrongValue(f"{text!r} is too small for a replay", hint="give at least 1MiB")
    return found


_ALL: tuple[tuple[str, Any, str, str], ...] = (
    ("memory", _room, "SIZE", f"Limit the memory of the replay.  {_USUAL}"),
    ("pids", click.IntRange(min=16), "N", "Limit the number of processes and threads.  [default: 4096]"),
    ("shm", _room, "SIZE", "Set the size of /dev/shm.  [default: the memory limit, at most 16GiB]"),
    (
        "disk",
        _room,
        "SIZE",
        "Limit the size of the replay's own folder (output, traces), and of each file that it writes.  "
        "[default: half of the free space]",
    ),
)
