"""One rank that moves its payload window about; prints nothing, asserts what the recorder says, reports moments."""

from __future__ import annotations

import contextlib

import rank
import torch
import torch.distributed as dist
from rank import ARGUMENTS, FOLDER, native, wait_for

MIB = 1 << 20


def receive(size_bytes: int) -> None:
    """An all_reduce over one rank receives as many bytes as it sends."""
    dist.all_reduce(torch.ones(size_bytes, dtype=torch.uint8))


def files() -> list[str]:
    return sorted(path.name for path in FOLDER.glob("payload.*.seg"))


def on_disk_bytes() -> int:
    """Segments are removed in the background: one may go between listing and looking."""
    total = 0
    for path in FOLDER.glob("payload.*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def switched() -> None:
    """Off, on, off; each switch counts at once."""
    receive(10)
    native.window(True, 0, 0)
    receive(20)
    native.window(False, 0, 0)
    receive(30)


def steps() -> None:
    """Three steps are kept; those from 5 on are held when the window would drop them."""
    native.window(True, 3, 0)
    for step in range(10):
        native.begin_step(step, 1)
        if step == 8:
            native.keep_from(5)
        receive(MIB)
    native.begin_step(12, 1)


def size() -> None:
    """No more than 8 MiB on disk."""
    native.window(True, 0, 8 * MIB)
    for step in range(20):
        native.begin_step(step, 1)
        receive(MIB)
        wait_for(lambda: on_disk_bytes() <= 8 * MIB, 10, f"what is too much at step {step} to be removed")


def large() -> None:
    """A payload never spans segments, however large."""
    native.window(True, 0, 0)
    for size_bytes in (100, 3 * MIB + 5, 100, 5 * MIB):
        receive(size_bytes)


def too_large() -> None:
    """A payload larger than the whole window ends the window, not the recording."""
    native.window(True, 0, 4 * MIB)
    receive(100)
    receive(5 * MIB)
    receive(100)
    assert "larger than the window" in native.stats()["lost"]
    assert native.stats()["mode"] == 1


rank.record()
rank.join()
{scenario.__name__: scenario for scenario in (switched, steps, size, large, too_large)}[ARGUMENTS[0]]()
rank.report({"stats": native.stats(), "files": files()})
dist.destroy_process_group()
