"""Communicators that no checkpoint can hold: NCCL's memory is shared with other GPUs and their ranks."""

from __future__ import annotations

from pathlib import Path

from prismdbg.capsule.log.reader import event_segments
from prismdbg.errors import CheckpointError
from prismdbg.log.columns import LAST_BYTES, read_whole

_ONLY_NCCL = ("nccl", "cuda:nccl")


def no_checkpoint(folder: Path) -> str:
    """Why the rank with this log folder cannot be saved; empty where it can. Before its first call it has no group."""
    if not event_segments(folder):
        return ""
    groups = [group for group in read_whole(folder, LAST_BYTES).groups.values() if "nccl" in group.backend]
    if any(group.backend in _ONLY_NCCL for group in groups):
        return "it has an NCCL communicator"
    # Of a group with a backend for each type of device nobody says from outside whether the one for GPUs is in use:
    # with `device_id` a communicator is there before the first call.
    return f"its group {groups[0].title} ({groups[0].backend}) may have an NCCL communicator" if groups else ""


def require_saveable(folder: Path) -> None:
    """Before the rank is asked to stand still."""
    if reason := no_checkpoint(folder):
        raise CheckpointError(
            f"rank {folder.name} cannot be checkpointed: {reason}",
            hint="capture with --origin state (record with --state-every) or --origin start (record with --window all)",
        )
