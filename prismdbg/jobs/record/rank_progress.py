"""How far each rank of a node came, for those who do not see its log: told with every heartbeat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismdbg.capsule.log.batch import Batch
from prismdbg.capsule.log.events import Event, Note, StepMark
from prismdbg.jobs.storage.run_report import log_bytes, payload_bytes
from prismdbg.model.moment import Moment


@dataclass(slots=True)
class _Rank:
    moment: Moment = field(default_factory=lambda: Moment(0))
    collectives: int = 0
    open: set[int] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    word: str = ""

    def feed(self, event: Event) -> None:
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
            self.collectives = max(self.collectives, batch.last.record_id + 1)

    def _note(self, note: Note) -> None:
        match note.kind:
            case "lost" | "no_agent":
                self.lost.append(str(note.data.get("text", "")))
            case "incident":
                self.word = "failed"
            case "exit":
                self.word = "failed" if note.data.get("code") or self.word == "failed" else "ended"
            case "parked" | "released":
                self.word = "parked" if note.kind == "parked" else ""


class RankProgress:
    """Fed with what the supervisor reads anyway."""

    def __init__(self) -> None:
        self._ranks: dict[str, _Rank] = {}

    def feed(self, name: str, event: Event) -> None:
        self._ranks.setdefault(name, _Rank()).feed(event)

    def to_json(self, folders: Iterable[Path]) -> dict[str, dict[str, Any]]:
        """`folders`: of the ranks' logs, which say how large they are."""
        return {folder.name: _json(self._ranks.get(folder.name, _Rank()), folder) for folder in folders}


def _json(rank: _Rank, folder: Path) -> dict[str, Any]:
    return {
        "moment": str(rank.moment),
        "collectives": rank.collectives,
        "in_flight": len(rank.open),
        "log_bytes": log_bytes(folder),
        "payload_bytes": payload_bytes(folder),
        "lost": "; ".join(rank.lost),
        "word": rank.word,
    }
