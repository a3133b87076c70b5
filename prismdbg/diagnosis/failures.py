"""Ranks that raised, or died without a word: which of them was first, and who only followed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prismdbg.capsule.log.events import Note, RankLog
from prismdbg.capsule.log.notes import moment_of
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.folded_traceback import folded
from prismdbg.diagnosis.verdict import Call, Certainty, Verdict
from prismdbg.diagnosis.wording import headline, how_it_died, rank_list
from prismdbg.errors import shortened
from prismdbg.log.columns import NOT_ENDED, LogColumns
from prismdbg.model.collective import Collective
from prismdbg.model.moment import Moment

_MOST_OF_LINE = 2000  # characters of a traceback's line: its last one may be a text of any length
_CLOSED = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised(Verdict):
    """`inside`: the collective it raised in, which makes it a consequence more often than a cause. was_outlived: as the
    function of that name says."""

    at: Moment | None
    type_name: str
    message: str
    traceback: str
    inside: Call | None
    last: Call | None
    followers: tuple[int, ...]
    was_outlived: bool = False

    kind = "raised"

    @property
    def moment(self) -> Moment | None:
        return self.at

    @property
    def text(self) -> str:
        after = f" at {self.at}" if self.at is not None else ""
        return f"rank {self.ranks[0]} raised {self.type_name}: {headline(self.message)}{after}"

    @property
    def lines(self) -> tuple[str, ...]:
        return (*self._traceback, *self._besides)

    @property
    def folded_lines(self) -> tuple[str, ...]:
        return (*folded(self._traceback), *self._besides)

    @property
    def _traceback(self) -> list[str]:
        return [shortened(line, _MOST_OF_LINE) for line in self.traceback.splitlines() if line.strip()]

    @property
    def _besides(self) -> tuple[str, ...]:
        lines = []
        if self.inside is not None:
            lines.append(f"inside a collective: {self.inside.text}")
        elif self.last is not None:
            lines.append(f"its last collective: {self.last.text}")
        if self.was_outlived:
            lines.append("the program continued after it")
        if self.followers:
            lines.append(f"{rank_list(self.followers)} failed after it")
        return tuple(lines)

    def details(self) -> dict[str, Any]:
        return {
            "type": self.type_name,
            "message": self.message,
            "traceback": self.traceback,
            "inside": self.inside.to_json() if self.inside is not None else None,
            "followers": list(self.followers),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Died(Verdict):
    """`followers`: ranks that failed or ended after it. seen_late: as `deaths_seen_late` of the evidence. code: where
    it is known that it ended by itself. signal: that ended it, 0 where it ended by itself, None where nobody saw it."""

    last: Call | None
    followers: tuple[int, ...]
    seen_late: bool = False
    code: int | None = None
    signal: int | None = None

    kind = "died"

    @property
    def moment(self) -> Moment | None:
        return self.last.collective.moment if self.last is not None else None

    @property
    def text(self) -> str:
        return f"rank {self.ranks[0]} {how_it_died(self.signal, self.code)}"

    @property
    def lines(self) -> tuple[str, ...]:
        lines = [f"its last collective: {self.last.text}" if self.last is not None else "it issued no collective"]
        if self.seen_late:
            lines.append(
                "its death was noticed late, so the cause is unknown, and another rank may have died before it"
            )
        elif self.certainty is not Certainty.CERTAIN:
            lines.append("the other ranks' connections were closed before any other error")
        if self.followers:
            lines.append(f"{rank_list(self.followers)} ended after it")
        return tuple(lines)


def find_failures(evidence: Evidence) -> list[Verdict]:
    """The first exception, and whatever else was raised outside of a collective; or the rank that died before that."""
    raised = [(rank, note) for rank, log in evidence.logs.items() for note in log.notes if note.kind == "incident"]
    raised.sort(key=lambda item: evidence.wall_ns(item[0], item[1].time_ns))
    outlived = [item for item in raised if was_outlived(evidence.columns[item[0]], item[1])]
    ended_by = [item for item in raised if item not in outlived]
    dead = first_dead(evidence)
    if dead is None and not ended_by:
        return _ends(evidence, raised, None)
    return [*_ends(evidence, ended_by, dead), *(_raised(evidence, *item, Certainty.HINT, ()) for item in outlived)]


def _ends(evidence: Evidence, raised: list[tuple[int, Note]], dead: int | None) -> list[Verdict]:
    """raised: in order, without those that their programs outlived."""
    outside = [item for item in raised if raised_inside(evidence.columns[item[0]], item[1]) is None]
    if dead is not None and not outside:
        return [_died(evidence, dead, [rank for rank, _ in raised])]
    first = outside or raised[:1]
    certainty = Certainty.CERTAIN if len(outside) == 1 else Certainty.LIKELY
    followers = tuple(sorted({rank for rank, _ in raised} - {rank for rank, _ in first}))
    return [_raised(evidence, rank, note, certainty, followers) for rank, note in first]


def first_dead(evidence: Evidence) -> int | None:
    """The silent rank that was gone first: it was seen, or it is the only one and the others lost their connections."""
    if evidence.died_first is not None:
        return evidence.died_first
    if len(evidence.silent) != 1:
        return None
    texts = [str(n.data.get("text", "")) for log in evidence.logs.values() for n in log.notes if n.kind == "incident"]
    lost_connections = any(words in text for text in texts for words in _CLOSED)
    return next(iter(evidence.silent)) if lost_connections or not texts else None


def _raised(evidence: Evidence, rank: int, note: Note, certainty: Certainty, followers: tuple[int, ...]) -> Raised:
    inside = raised_inside(evidence.columns[rank], note)
    return Raised(
        certainty=certainty,
        began_wall_ns=evidence.wall_ns(rank, note.time_ns),
        ranks=(rank,),
        at=_moment(note),
        type_name=str(note.data.get("type", "an exception")),
        message=str(note.data.get("text", "")),
        traceback="".join(map(str, note.data.get("traceback") or [])),
        inside=Call(rank=rank, collective=inside) if inside is not None else None,
        last=last_call(evidence.logs[rank]),
        followers=followers,
        was_outlived=was_outlived(evidence.columns[rank], note),
    )


def _died(evidence: Evidence, rank: int, raised: list[int]) -> Died:
    last = last_call(evidence.logs[rank]) if rank in evidence.logs else None
    certain = rank == evidence.died_first and not evidence.deaths_seen_late
    return Died(
        certainty=Certainty.CERTAIN if certain else Certainty.LIKELY,
        began_wall_ns=evidence.wall_ns(rank, last.collective.time_created_ns) if last is not None else 0,
        ranks=(rank,),
        last=last,
        followers=tuple(sorted((evidence.silent | set(raised)) - {rank})),
        seen_late=rank == evidence.died_first and evidence.deaths_seen_late,
        code=evidence.exit_codes.get(rank),
        signal=0 if rank in evidence.exit_codes else evidence.signals.get(rank),
    )


def last_call(log: RankLog) -> Call | None:
    if not log.collectives:
        return None
    return Call(rank=log.rank, collective=log.collectives[-1])


def was_outlived(log: LogColumns, note: Note) -> bool:
    """Whether its program went on: past one of a thread, as that of a library which reports to a server, to another
    collective; past one that it had only printed (`sys.excepthook`) to another step, for what is called at its end
    (`atexit`) may issue collectives."""
    if note.data.get("thread"):
        return bool((log.begun_ns > note.time_ns).any())
    return any(mark.time_ns > note.time_ns for mark in log.steps)


def has_failed(log: LogColumns) -> bool:
    """Whether it raised, or the last of its collectives that ended failed: it lost a peer, or failed by itself,
    whatever ended it after that."""
    if any(n.kind == "incident" and not n.data.get("thread") and not was_outlived(log, n) for n in log.notes):
        return True
    ended = np.flatnonzero(log.ended_ns != NOT_ENDED)
    return bool(len(ended)) and bool(log.failed[ended[np.argmax(log.ended_ns[ended])]])


def raised_inside(log: LogColumns, note: Note) -> Collective | None:
    """The collective the rank was in, or that had just failed, when it raised. On a device a call is issued and left:
    an open one says nothing of an exception, unless the backend raised it."""
    before = np.flatnonzero(log.begun_ns <= note.time_ns)
    if not len(before):
        return None
    last = int(before[-1])
    if log.ended_ns[last] != NOT_ENDED and not log.failed[last]:
        return None
    call = log.collective(last)
    return call if log.failed[last] or not call.is_on_device or is_of_backend(note) else None


def is_of_backend(note: Note) -> bool:
    """Whether a work was what raised it, as NCCL's do when they wait too long."""
    return note.data.get("type") == "DistBackendError"


def _moment(note: Note) -> Moment | None:
    return moment_of(note.data)
