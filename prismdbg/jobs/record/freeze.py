"""Turns an incident into a capsule out of what was kept before it: a checkpoint, or the log from the start."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Incident, Origin
from prismdbg.jobs.capture.assemble import Ingredients, assemble, kept_from_the_start
from prismdbg.jobs.capture.states import KeptState, last_complete, pinned, usable_states, while_dropped
from prismdbg.jobs.record.checkpoints import Checkpoint, usable_checkpoints
from prismdbg.jobs.record.incidents import Wanted
from prismdbg.jobs.record.nothing_before import nothing_before
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.log.folding import bytes_since
from prismdbg.log.rank_log import read_log

Kept = TypeVar("Kept", Checkpoint, KeptState)


def freeze(run: RunFolder, wanted: Wanted) -> Capsule:
    """From the newest usable checkpoint or state snapshot that leads through a whole step; where none does, from the
    start, if that was kept, and else from the newest before the incident. `CapsuleError` says why nothing that was kept
    can replay the incident, and what would have; `NotReplayable` where the run was to keep something for it."""
    return while_dropped(lambda: _freeze(run, wanted))


def _freeze(run: RunFolder, wanted: Wanted) -> Capsule:
    folder = run.ranks / wanted.folder
    checkpoint, leads = _newest_before(usable_checkpoints(run, folder), wanted, folder)
    state = None
    if checkpoint is None:
        state, leads = _newest_before(usable_states(run, folder), wanted, folder)
    parts = Ingredients(
        run=run,
        folder=folder,
        output=_free_name(run.capsules, wanted),
        origin=Origin.START,
        incident=wanted.incident,
        last_moment=wanted.last,
        died_with=wanted.died_with,
    )
    if not leads and kept_from_the_start(folder):
        return _made(parts)
    if checkpoint is not None:
        return _made(
            replace(
                parts,
                origin=Origin.IMAGE,
                past_records=checkpoint.past_records,
                in_flight=checkpoint.in_flight,
                images=checkpoint.images,
                keep_images=True,
            )
        )
    if state is None:
        raise nothing_before(parts)
    with pinned(run, folder, state) as (pinned_log, snapshot):
        from_state = replace(parts, folder=pinned_log, origin=Origin.STATE, state=snapshot)
        return _made(replace(from_state, past_records=state.past_records))


def _made(parts: Ingredients) -> Capsule:
    parts.run.capsules.mkdir(exist_ok=True, mode=0o700)
    return assemble(parts)


def has_past(run: RunFolder, folder: Path) -> bool:
    """Whether there is something to freeze: a checkpoint, a state snapshot, or payloads since the start."""
    return bool(usable_checkpoints(run, folder) or usable_states(run, folder)) or kept_from_the_start(folder)


def wanted_now(folder: Path, incident: Incident) -> Wanted:
    """Of a rank that goes on: to its last collective before which all are complete."""
    last = last_complete(folder)
    return Wanted(folder=folder.name, incident=replace(incident, moment=last), last=last)


def _newest_before(kept: Sequence[Kept], wanted: Wanted, folder: Path) -> tuple[Kept | None, bool]:
    """The newest from which a replay goes through a whole step before the incident's, or before the rank's last where
    it did not come to the incident; where none does, the newest before the incident. And whether it does."""
    moment = wanted.incident.moment
    if moment is None or not kept:
        return None, False
    log = read_log(folder, bytes_since(folder, max(kept[0].past_records - 1, 0)))  # older collectives lead to none
    if not log.collectives:
        return None, False
    row, last = bisect_left(log.collectives, moment, key=lambda c: c.moment), log.collectives[-1]
    came = row < len(log.collectives)
    incident = log.collectives[row].record_id if came else last.record_id + 1
    before = [c for c in kept if c.past_records <= incident]
    step = moment.step if came else last.moment.step
    leading = [c for c in before if c.leads_to(step)]
    best = leading or before
    return (best[-1] if best else None), bool(leading)


def _free_name(capsules: Path, wanted: Wanted) -> Path:
    moment = f"-{wanted.incident.moment}" if wanted.incident.moment is not None else ""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", f"{wanted.incident.kind}-rank{wanted.folder}{moment}")
    path, number = capsules / name, 1
    while path.exists():
        number += 1
        path = capsules / f"{name}-{number}"
    return path
