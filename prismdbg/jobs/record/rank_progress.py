"""How far each rank of a node came, for those who do not see its log: told with every heartbeat."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismdbg.capsule.log.batch import Batch
from prismdbg.capsule.log.events import Event, Note, StepMark
from prismdbg.jobs.storage.run_report import RAISED, log_bytes, payload_bytes
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


class RankProgress:
    """Fed with what the supervisor reads anyway."""

    def __init__(self) -> None:
        self._ranks: dict[str, _Rank] = {}

    def feed(self, name: str, event: Event) -> None:
        self._ranks.setdefault(name, _Rank()).feed(event)

    def to_json(self, folders: Iterable[Path], *, at_once: bool = False) -> dict[str, dict[str, Any]]:
        """`folders`: of the ranks' logs, which say how large they are, some seconds ago unless `at_once`: a log has
        dozens of files, perhaps on a file server, and those of ranks that have ended grow no more."""
        found = {}
        for folder in folders:
            rank = self._ranks.setdefault(folder.name, _Rank())
            if at_once or (rank.grew and time.monotonic() - rank.measured_s > MEASURED_S):
                rank.grew, rank.measured_s = False, time.monotonic()
                rank.sizes = log_bytes(folder), payload_bytes(folder)
            found[folder.name] = _json(rank)
        return found


def _json(rank: _Rank) -> dict[str, Any]:
    return {
        "moment": str(rank.moment),
        "collectives": rank.collectives,
        "in_flight": len(rank.open),
        "log_bytes": rank.sizes[0],
        "payload_bytes": rank.sizes[1],
        "lost": "; ".join(rank.lost),
        "word": rank.word,
    }
