"""Turns an incident into a capsule out of what was kept before it: a checkpoint, or the log from the start."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace
from pathlib import Path

import numpy as np

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Incident, Origin
from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture.assemble import Ingredients, assemble, kept_from_the_start
from prismdbg.jobs.record.checkpoints import Checkpoint, list_checkpoints
from prismdbg.jobs.record.incidents import Wanted
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.log.columns import LAST_BYTES, NOT_ENDED, LogColumns, read_whole
from prismdbg.log.folding import bytes_since
from prismdbg.log.rank_log import read_log
from prismdbg.model.moment import Moment


def freeze(run: RunFolder, wanted: Wanted) -> Capsule:
    """`CapsuleError` says why nothing that was kept can replay the incident, and what would have."""
    folder = run.ranks / wanted.folder
    checkpoint = _origin_before(run, folder, wanted)
    if checkpoint is None and not kept_from_the_start(folder):
        raise CapsuleError(
            f"no capsule of rank {wanted.folder}: no data from before the incident was kept",
            hint="record with --checkpoint-every STEPS, or with --window all to replay from the program's start",
        )
    return assemble(
        Ingredients(
            run=run,
            folder=folder,
            output=_free_name(run.capsules, wanted),
            origin=Origin.START if checkpoint is None else Origin.IMAGE,
            incident=wanted.incident,
            past_records=0 if checkpoint is None else checkpoint.past_records,
            in_flight=() if checkpoint is None else checkpoint.in_flight,
            images=None if checkpoint is None else checkpoint.images,
            keep_images=True,
            last_moment=wanted.last,
            died_with=wanted.died_with,
        )
    )


def has_past(run: RunFolder, folder: Path) -> bool:
    """Whether there is something to freeze: a checkpoint, or payloads since the start."""
    return bool(list_checkpoints(run, folder)) or kept_from_the_start(folder)


def wanted_now(folder: Path, incident: Incident) -> Wanted:
    """Of a rank that goes on: to its last collective before which all are complete."""
    log = read_whole(folder, LAST_BYTES)
    done = _first_unfinished(log)
    if done < len(log) and log.step[done] <= log.first_step_read:  # the one before it may not be there
        log = read_whole(folder)
        done = _first_unfinished(log)
    last = log.moment(done - 1) if done else Moment(0)
    return Wanted(folder=folder.name, incident=replace(incident, moment=last), last=last)


def _first_unfinished(log: LogColumns) -> int:
    """The row of the first collective that is not complete; the number of rows where all are."""
    unfinished = np.flatnonzero(log.ended_ns == NOT_ENDED)
    return int(unfinished[0]) if len(unfinished) else len(log)


def _origin_before(run: RunFolder, folder: Path, wanted: Wanted) -> Checkpoint | None:
    """The newest checkpoint from which a replay goes through a whole step before the incident's, or before the rank's
    last where it did not come to the incident; where none does, the newest before the incident."""
    moment, kept = wanted.incident.moment, list_checkpoints(run, folder)
    if moment is None or not kept:
        return None
    log = read_log(folder, bytes_since(folder, max(kept[0].past_records - 1, 0)))  # older collectives lead to none
    if not log.collectives:
        return None
    row, last = bisect_left(log.collectives, moment, key=lambda c: c.moment), log.collectives[-1]
    came = row < len(log.collectives)
    incident = log.collectives[row].record_id if came else last.record_id + 1
    before = [c for c in kept if c.past_records <= incident]
    step = moment.step if came else last.moment.step
    best = [c for c in before if c.leads_to(step)] or before
    return best[-1] if best else None


def _free_name(capsules: Path, wanted: Wanted) -> Path:
    capsules.mkdir(exist_ok=True, mode=0o700)
    moment = f"-{wanted.incident.moment}" if wanted.incident.moment is not None else ""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", f"{wanted.incident.kind}-rank{wanted.folder}{moment}")
    path, number = capsules / name, 1
    while path.exists():
        number += 1
        path = capsules / f"{name}-{number}"
    return path
