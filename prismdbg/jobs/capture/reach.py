"""What can be captured of a rank, said before it is needed: by each origin, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prismdbg.capsule.log.notes import NO_STATE
from prismdbg.capsule.log.reader import event_segments
from prismdbg.checkpoint import choice
from prismdbg.errors import CapsuleError, PrismError
from prismdbg.jobs.capture.assemble import kept_from_the_start
from prismdbg.jobs.capture.capture import socket_of
from prismdbg.jobs.capture.communicators import no_checkpoint
from prismdbg.jobs.capture.requests import has_local_logs, is_elsewhere, refuse_lost, state_of
from prismdbg.jobs.capture.states import why_none
from prismdbg.jobs.storage.job_nodes import node_of
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of
from prismdbg.log.columns import LAST_BYTES, read_whole
from prismdbg.model.meanwhile import one_by_one


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Of one rank. `start`, `state`, `checkpoint`: why it cannot be captured with this origin, empty where it can.
    checked_there: a supervisor of another node takes the checkpoint, and only that node knows what it lacks."""

    folder: str
    node: str
    start: str
    state: str
    checkpoint: str
    checked_there: bool = False

    @property
    def is_any(self) -> bool:
        return not (self.start and self.state and self.checkpoint)


def reach_of_ranks(run: RunFolder) -> list[Reach]:
    """In rank order, of the last attempt of each rank. `CapsuleError` where RUN is damaged."""
    latest = {rank_of(folder): folder for folder in run.rank_folders()}
    return [_reach(run, folder) for folder in one_by_one(list(latest.values()), "checking ranks")]


def _reach(run: RunFolder, folder: Path) -> Reach:
    elsewhere = is_elsewhere(folder)
    if elsewhere and has_local_logs(folder):
        return _reach_of_local(run, folder)
    why_not = _no_checkpoint_elsewhere(run, folder) if elsewhere else _no_checkpoint_here(folder)
    return Reach(
        folder=folder.name,
        node=node_of(folder),
        start="" if kept_from_the_start(folder) else _no_start(run),
        state=why_none(run, folder, _ended(folder)),
        checkpoint=why_not or no_checkpoint(folder),
        checked_there=elsewhere,
    )


def _reach_of_local(run: RunFolder, folder: Path) -> Reach:
    """Of a rank whose log its node keeps: by what it was recorded with, and by what its supervisor told last."""
    lost = _no_checkpoint_elsewhere(run, folder)
    told = state_of(run, folder).progress.get(folder.name, {})
    return Reach(
        folder=folder.name,
        node=node_of(folder),
        start=lost or ("" if run.keeps_all else _no_start(run)),
        state=lost or told.get("no_state", why_none(run, folder, "")),
        checkpoint=lost or told.get("no_checkpoint", ""),
        checked_there=True,
    )


def _no_start(run: RunFolder) -> str:
    return "not all payloads since the start are kept" + ("" if run.keeps_all else " (--window all)")


def _ended(folder: Path) -> str:
    """Why the rank takes no further state snapshots, as its log says it."""
    notes = read_whole(folder, LAST_BYTES).notes if event_segments(folder) else ()
    return next((str(note.data.get("text", "")) for note in notes if note.kind == NO_STATE), "")


def _no_checkpoint_here(folder: Path) -> str:
    try:
        socket_of(folder)
        choice.find()
    except CapsuleError:  # a damaged RUN is no reason of the rank's
        raise
    except PrismError as error:
        return str(error)
    return ""


def _no_checkpoint_elsewhere(run: RunFolder, folder: Path) -> str:
    try:
        refuse_lost(folder, state_of(run, folder))
    except PrismError as error:
        return str(error)
    return ""
