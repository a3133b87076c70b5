"""Communicators that no checkpoint can hold: NCCL's memory is shared with other GPUs and their ranks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prismdbg.capsule.log.reader import event_segments
from prismdbg.errors import CheckpointError
from prismdbg.log.columns import LAST_BYTES, read_whole
from prismdbg.model.collective import Group

_ONLY_NCCL = ("nccl", "cuda:nccl")


def no_checkpoint(folder: Path) -> str:
    """Why the rank with this log folder cannot be saved; empty where it can. Before its first call it has no group."""
    if not event_segments(folder):
        return ""
    return no_checkpoint_with(read_whole(folder, LAST_BYTES).groups.values())


def no_checkpoint_with(groups: Iterable[Group]) -> str:
    """The same, by the groups that the rank is in."""
    on_gpus = [group for group in groups if "nccl" in group.backend]
    if any(group.backend in _ONLY_NCCL for group in on_gpus):
        return "it has an NCCL communicator"
    # Of a group with a backend for each type of device nobody says from outside whether the one for GPUs is in use:
    # with `device_id` a communicator is there before the first call.
    return f"its group {on_gpus[0].title} ({on_gpus[0].backend}) may have an NCCL communicator" if on_gpus else ""


def require_saveable(folder: Path) -> None:
    """Before the rank is asked to stand still."""
    if reason := no_checkpoint(folder):
        raise CheckpointError(
            f"rank {folder.name} cannot be checkpointed: {reason}",
            hint="capture with --origin state (record with --state-every) or --origin start (record with --window all)",
        )
