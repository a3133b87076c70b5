"""The images of `--checkpoint-every`: the newest two of a rank, and what it takes to replay a whole step before now."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prismdbg.capsule.partial import partial_folder
from prismdbg.checkpoint import choice
from prismdbg.errors import PrismError
from prismdbg.jobs.capture.capture import (
    PATIENT,
    GivenUp,
    Patience,
    Say,
    Taken,
    agent_of,
    socket_of,
    take_image,
    told_of_its_end,
)
from prismdbg.jobs.capture.communicators import require_saveable
from prismdbg.jobs.capture.costs import SPARE_BYTES, predict_image
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.log.folding import needed_after, reaches
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import NotWaitedFor

KEPT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One whole image on disk. `past_records`: collectives the rank had issued."""

    path: Path
    moment: Moment
    past_records: int
    in_flight: tuple[int, ...]
    paused_ns: int
    images_bytes: int

    @property
    def images(self) -> Path:
        return self.path / "images"

    @property
    def needed_from(self) -> int:
        return min((needed_after(self.past_records), *self.in_flight))

    def is_in(self, log: Path) -> bool:
        """Whether the log still reaches back to it."""
        return reaches(log, needed_after(self.past_records), self.in_flight)

    def leads_to(self, step: int) -> bool:
        """Whether a replay from here goes through a whole step before `step`."""
        return self.moment.step + (self.moment.collective > 0) < step


def list_checkpoints(run: RunFolder, folder: Path) -> list[Checkpoint]:
    """Of one rank's attempt, oldest first."""
    found = []
    for path in (run.checkpoints / folder.name).glob("*/checkpoint.json"):
        data = read_json(path)
        found.append(
            Checkpoint(
                path=path.parent,
                moment=Moment.parse(data["moment"]),
                past_records=int(data["past_records"]),
                in_flight=tuple(data["in_flight"]),
                paused_ns=int(data["paused_ns"]),
                images_bytes=int(data["images_bytes"]),
            )
        )
    return sorted(found, key=lambda checkpoint: checkpoint.past_records)


def usable_checkpoints(run: RunFolder, folder: Path) -> list[Checkpoint]:
    """Those of `list_checkpoints` at which a capsule can start."""
    return [checkpoint for checkpoint in list_checkpoints(run, folder) if checkpoint.is_in(folder)]


def take(
    run: RunFolder, folder: Path, say: Say, patience: Patience = PATIENT, given_up: GivenUp | None = None
) -> Checkpoint:
    """A new checkpoint of a live rank; whole or not there. Drops the older ones that no incident needs. `NotWaitedFor`
    where it was `given_up` before there was an image, `FacilityError` where the disk, which the job may write to, has
    no room for it."""
    home = run.checkpoints / folder.name
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    _require_room(folder, home)
    with partial_folder(home / "checkpoint") as partial:
        taken = take_image(folder, partial / "images", say, patience, given_up=given_up)
        write_json(partial / "checkpoint.json", _describe(taken))
        whole = home / str(taken.moment)
        shutil.rmtree(whole, ignore_errors=True)  # taken there before: a rank that waits does not get on
        partial.rename(whole)
    kept = _drop_old(run, folder)
    # Until one leads to a whole step before the newest one, an incident there is replayed from the start.
    since = kept[0].moment.step if kept[0].leads_to(kept[-1].moment.step) else 0
    # A rank that is not waited for keeps more than it needs to, until the next checkpoint at most.
    with suppress(NotWaitedFor), told_of_its_end(folder), agent_of(folder, given_up=given_up) as agent:
        agent.ask("keep_from", given_up=given_up, step=since)
    return kept[-1]


def why_never(folder: Path) -> PrismError | None:
    """What keeps any checkpoint of this rank from being taken, here and as long as it lives."""
    try:
        choice.find()
        require_saveable(folder)
    except PrismError as error:
        return error
    return None


def _require_room(folder: Path, home: Path) -> None:
    """Before the rank stands still for it."""
    hint = f"free some space: with --checkpoint-every the disk holds {KEPT} checkpoints of each rank, and a new one"
    with told_of_its_end(folder):
        socket_of(folder)  # a rank that is out of reach, or has ended, is named as such
        predict_image(int(read_json(folder / "rank.json")["pid"]), home, spare_bytes=SPARE_BYTES, hint=hint)


def _describe(taken: Taken) -> dict[str, object]:
    return {
        "moment": str(taken.moment),
        "past_records": taken.past_records,
        "in_flight": list(taken.in_flight),
        "paused_ns": taken.paused_ns,
        "frozen_ns": taken.report.frozen_ns,
        "images_bytes": taken.report.images_bytes,
    }


def _drop_old(run: RunFolder, folder: Path) -> list[Checkpoint]:
    """Gives those that stay: an incident in the step of the newest one still has a whole step before it."""
    known = list_checkpoints(run, folder)
    lead = [number for number, one in enumerate(known) if one.leads_to(known[-1].moment.step)]
    first = min(max(len(known) - KEPT, 0), max(lead, default=0))
    for checkpoint in known[:first]:
        shutil.rmtree(checkpoint.path, ignore_errors=True)
    return known[first:]
