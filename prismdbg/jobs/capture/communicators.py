"""Communicators that no checkpoint can hold: NCCL's memory is shared with other GPUs and their ranks."""

from __future__ import annotations

from pathlib import Path

from prismdbg.capsule.log.reader import event_segments
from prismdbg.errors import CheckpointError
from prismdbg.log.columns import LAST_BYTES, read_whole


def no_checkpoint(folder: Path) -> str:
    """Why the rank with this log folder cannot be saved; empty where it can. Before its first call it has no group."""
    if not event_segments(folder):
        return ""
    groups = read_whole(folder, LAST_BYTES).groups.values()
    return "it has an NCCL communicator" if any("nccl" in group.backend for group in groups) else ""


def require_saveable(folder: Path) -> None:
    """Before the rank is asked to stand still."""
    if reason := no_checkpoint(folder):
        raise CheckpointError(
            f"rank {folder.name} cannot be checkpointed: {reason}",
            hint="capture with --origin state (record with --state-every) or --origin start (record with --window all)",
        )
