"""How far each rank of a node came, for those who do not see its log: told with every heartbeat."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismdbg.capsule.log import notes
from prismdbg.capsule.log.batch import Batch
from prismdbg.capsule.log.events import Event, Note, StepMark
from prismdbg.errors import PrismError
from prismdbg.jobs.capture.communicators import no_checkpoint_with
from prismdbg.jobs.capture.states import why_none
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.jobs.storage.run_report import RAISED, log_bytes, payload_bytes
from prismdbg.model.collective import Group
from prismdbg.model.moment import Moment

MEASURED_S = 10.0


@dataclass(slots=True)
class _Rank:
    moment: Moment = field(default_factory=lambda: Moment(0))
    collectives: int = 0
    open: set[int] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    word: str = ""
    raised_ns: int = 0
    groups: dict[str, Group] = field(default_factory=dict)
    states_ended: str = ""
    no_state: str | None = None  # not looked for
    sizes: tuple[int, int] = 0, 0  # of the log, and of received data
    grew: bool = True
    measured_s: float = -MEASURED_S

    def feed(self, event: Event) -> None:
        self.grew = True
        match event:
            case Batch():
                self._go_on(event)
            case StepMark():
                self.moment = max(self.moment, Moment(event.step))
            case Note():
                self._note(event)
            case Group():
                self.groups[event.name] = event

    def _go_on(self, batch: Batch) -> None:
        self.open.difference_update(batch.closed)
        self.open.update(collective.record_id for collective in batch.open)
        if batch.last is not None:
            self.moment = max(self.moment, batch.last.moment)
            if self.word == RAISED and batch.last.time_created_ns > self.raised_ns:
                self.word = ""  # it goes on
            self.collectives = max(self.collectives, batch.last.record_id + 1)

    def _note(self, note: Note) -> None:
        match note.kind:
            case "lost" | "no_agent":
                self.lost.append(str(note.data.get("text", "")))
            case "incident":
                self.word, self.raised_ns = RAISED, note.time_ns
            case "exit":  # its code says whether an exception ended it, or was only printed
                self.word = "failed" if note.data.get("code") else "ended"
            case "parked" | "released":
                self.word = "parked" if note.kind == "parked" else ""
            case notes.NO_STATE:
                self.states_ended = str(note.data.get("text", ""))


class RankProgress:
    """Fed with what the supervisor reads anyway."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._ranks: dict[str, _Rank] = {}

    def feed(self, name: str, event: Event) -> None:
        self._ranks.setdefault(name, _Rank()).feed(event)

    def to_json(self, folders: Iterable[Path], *, at_once: bool = False) -> dict[str, dict[str, Any]]:
        """`folders`: of the ranks' logs. How large they are, and why there is no state snapshot, is some seconds old
        unless `at_once`: a log has dozens of files, perhaps on a file server, and those of ranks that have ended grow
        no more."""
        found = {}
        for folder in folders:
            rank = self._ranks.setdefault(folder.name, _Rank())
            if at_once or (rank.grew and time.monotonic() - rank.measured_s > MEASURED_S):
                rank.grew, rank.measured_s = False, time.monotonic()
                rank.sizes = log_bytes(folder), payload_bytes(folder)
                if self._run.local is not None:  # else whoever asks looks for them in RUN
                    rank.no_state = _why_no_state(self._run, folder, rank.states_ended)
            found[folder.name] = _json(rank)
        return found


def _why_no_state(run: RunFolder, folder: Path, ended: str) -> str:
    try:
        return why_none(run, folder, ended)
    except (PrismError, OSError) as error:  # a damaged one: what else there is to tell is told
        return str(error)


def _json(rank: _Rank) -> dict[str, Any]:
    return {
        "moment": str(rank.moment),
        "collectives": rank.collectives,
        "in_flight": len(rank.open),
        "log_bytes": rank.sizes[0],
        "payload_bytes": rank.sizes[1],
        "lost": "; ".join(rank.lost),
        "word": rank.word,
        **({} if rank.no_state is None else {"no_state": rank.no_state}),
        "no_checkpoint": no_checkpoint_with(rank.groups.values()),
    }
