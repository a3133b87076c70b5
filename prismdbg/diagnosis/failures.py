"""Ranks that raised, or died without a word: which of them was first, and who only followed."""

from __future__ import annotations

import math
import signal
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from typing import Any

import numpy as np

from prismdbg.capsule.log.events import Note, RankLog
from prismdbg.capsule.log.notes import moment_of, raised_at, traceback_of
from prismdbg.diagnosis.clocks import apart_ns
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.folded_traceback import folded
from prismdbg.diagnosis.outlived import was_outlived
from prismdbg.diagnosis.verdict import Call, Certainty, Verdict, without_folders
from prismdbg.diagnosis.wording import exit_code, headline, how_it_died, rank_list
from prismdbg.errors import INTERRUPTED, shortened
from prismdbg.log.columns import NOT_ENDED, LogColumns
from prismdbg.model.collective import Collective
from prismdbg.model.durations import brief
from prismdbg.model.moment import Moment

_MOST_OF_LINE = 2000  # characters of a traceback's line: its last one may be a text of any length
_FRAME = '  File "'  # of a traceback's line, not of a text in it
_OTHERS = 3  # ranks whose words are shown beside those of the first
_CLOSED = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
_ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # what launchers end the other ranks with
_FIRST_NS = 10_000_000  # by less nobody is called the first: a rank may wait for a CPU before its exception is noted
_SOON_NS = 1_000_000_000  # within that, a supervisor without a processor may see a death after what came of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised(Verdict):
    """`inside`: the collective it raised in, which makes it a consequence more often than a cause. earlier: ranks that
    had failed before it was noted: a program may close its connections before that. was_outlived: as the function of
    that name says. times: so many of the same place are told together; last_at: where the last of them was raised.
    ranks: of all that raised it at the same place and moment, the first one first; others: what they said otherwise;
    first_by_ns: how long before all others the first raised it, 0 where that is not known."""

    at: Moment | None
    type_name: str
    message: str
    traceback: str
    inside: Call | None
    last: Call | None
    followers: tuple[int, ...]
    earlier: tuple[int, ...] = ()
    was_outlived: bool = False
    times: int = 1
    last_at: Moment | None = None
    others: Mapping[int, str] = field(default_factory=dict)
    first_by_ns: int = 0

    kind = "raised"

    @property
    def moment(self) -> Moment | None:
        return self.at

    @property
    def text(self) -> str:
        return f"{rank_list(self.ranks)} raised{_at(self.at)}{':' * (self.at is not None)} {self._what}"

    @property
    def brief(self) -> str:
        """With the moment at its end: a screen that shows the moment before the sentence leaves it out there."""
        return without_folders(f"{rank_list(self.ranks)} raised {self._what}{_at(self.at)}")

    @property
    def _what(self) -> str:
        return f"{self.type_name}: {headline(self.message)}"

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
        if self.first_by_ns:
            others = f"rank {self.ranks[1]}" if len(self.ranks) == 2 else "the others"
            lines.append(f"rank {self.ranks[0]} raised it first, {brief(self.first_by_ns)} before {others}")
        lines += [f"rank {rank} reported: {headline(text)}" for rank, text in islice(self.others.items(), _OTHERS)]
        if len(self.others) > _OTHERS:
            lines.append(f"{len(self.others) - _OTHERS} more ranks reported other messages")
        if self.inside is not None:
            lines.append(f"inside a collective: {self.inside.text}")
        elif self.last is not None:
            lines.append(_last(self.last))
        if self.times > 1:
            last = f", last{_at(self.last_at)}" * (self.last_at is not None)
            lines.append(f"raised {self.times} times{last}; the program continued after each")
        elif self.was_outlived:
            lines.append("the program continued after it")
        if self.followers:
            lines.append(f"{rank_list(self.followers)} failed after it")
        if self.earlier:
            lines.append(f"{rank_list(self.earlier)} had failed before it")
        return tuple(lines)

    def details(self) -> dict[str, Any]:
        return {
            "type": self.type_name,
            "message": self.message,
            "traceback": self.traceback,
            "inside": self.inside.to_json() if self.inside is not None else None,
            "followers": list(self.followers),
            "times": self.times,
            "others": {str(rank): text for rank, text in self.others.items()},
            "first_by_ns": self.first_by_ns,
        }


class KnownBy(Enum):
    """How it is known that a rank died first; the text says where that is not certain."""

    SEEN = ""
    SEEN_LATE = "its death was noticed late, so the cause is unknown, and another rank may have died before it"
    CLOCKS = "the difference between the nodes' clocks is unknown, so another rank may have died before it"
    CONNECTIONS = "the other ranks' connections were closed before any other error"
    SILENCE = "it is the only rank whose log has no end record"
    PERHAPS_TOLD = "perhaps the job was terminated: the other ranks were ended by such a signal right after it"

    @property
    def text(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Died(Verdict):
    """`followers`: ranks that failed or ended after it. known_by: what makes it the first. code: where it is known that
    it ended by itself. signal: that ended it, 0 where it ended by itself, None where nobody saw it."""

    last: Call | None
    followers: tuple[int, ...]
    known_by: KnownBy = KnownBy.SEEN
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
        lines = [_last(self.last)]
        if self.known_by.text:
            lines.append(self.known_by.text)
        if self.followers:
            lines.append(f"{rank_list(self.followers)} ended after it")
        return tuple(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exited(Verdict):
    """A program that ended itself with an exit code that is not 0. others: codes of ranks that did so later;
    followers: ranks that raised after it."""

    at: Moment | None
    code: int
    last: Call | None
    others: Mapping[int, int]
    followers: tuple[int, ...] = ()

    kind = "exited"

    @property
    def moment(self) -> Moment | None:
        return self.at

    @property
    def text(self) -> str:
        return f"rank {self.ranks[0]} exited with {exit_code(self.code)}{_at(self.at)}"

    @property
    def lines(self) -> tuple[str, ...]:
        lines = [_last(self.last)]
        for code in dict.fromkeys(self.others.values()):
            ranks = [rank for rank, other in self.others.items() if other == code]
            lines.append(f"{rank_list(ranks)} exited after it with {exit_code(code)}")
        if self.followers:
            lines.append(f"{rank_list(self.followers)} failed after it")
        return tuple(lines)

    def details(self) -> dict[str, Any]:
        return {"code": self.code, "followers": list(self.followers)}


def _at(moment: Moment | None) -> str:
    return f" at {moment}" if moment is not None else ""


def _last(call: Call | None) -> str:
    return f"its last collective: {call.text}" if call is not None else "it issued no collective"


def find_failures(evidence: Evidence) -> list[Verdict]:
    """What ended ranks: a death, exceptions and exit codes, as far as none of them follows from another."""
    raised = _all_raised(evidence)
    ended_by = [item for item in raised if item.is_an_end]
    dead = first_dead(evidence)
    found = _with_death(evidence, ended_by, dead) if dead is not None else _without_death(evidence, ended_by)
    alone = not found
    others = _joined(item for item in raised if not item.is_an_end)
    return [*found, *(_no_end(evidence, alike, alone=alone) for alike in others)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Raise:
    """is_inside: in a collective, as it is raised where a peer is gone; lost_peer: its text says that one is."""

    rank: int
    note: Note
    wall_ns: int
    is_inside: bool
    lost_peer: bool
    was_outlived: bool
    main_waited: bool

    @property
    def is_an_end(self) -> bool:
        """As far as is known; that of a thread ends no process, and least of all a wait of the main thread."""
        return not self.was_outlived and not self.main_waited

    @property
    def is_of_thread(self) -> bool:
        return bool(self.note.data.get("thread"))

    @property
    def place(self) -> Hashable:
        """The number that the rank gave it. Where there are very many it gave none."""
        return self.note.data.get("place") or raised_at(self.note.data)

    @classmethod
    def of(cls, evidence: Evidence, rank: int, note: Note) -> _Raise:
        log = evidence.columns[rank]
        return cls(
            rank=rank,
            note=note,
            wall_ns=evidence.wall_ns(rank, note.time_ns),
            is_inside=raised_inside(log, note) is not None,
            lost_peer=says_lost_peer(note),
            was_outlived=was_outlived(log, note),
            main_waited=bool(note.data.get("thread")) and _main_waits(log, note),
        )


def _all_raised(evidence: Evidence) -> list[_Raise]:
    """In order."""
    found = [
        _Raise.of(evidence, rank, note)
        for rank, log in evidence.logs.items()
        for note in log.notes
        if note.kind == "incident"
    ]
    return sorted(found, key=lambda item: item.wall_ns)


def _joined(raised: Iterable[_Raise]) -> Iterable[list[_Raise]]:
    """Those that programs outlived, by their places: a library may raise one every minute. Each other one alone."""
    found: dict[Hashable, list[_Raise]] = {}
    for item in raised:
        key = (item.rank, item.place) if item.was_outlived else id(item)
        found.setdefault(key, []).append(item)
    return found.values()


def says_lost_peer(note: Note) -> bool:
    """Whether by its text a connection to a peer was closed, as where that has ended: a consequence."""
    text = str(note.data.get("text", ""))
    return any(words in text for words in _CLOSED)


def _with_death(evidence: Evidence, raised: list[_Raise], dead: int) -> list[Verdict]:
    """The death, and what it does not explain: what was raised outside of a collective, or long before it was seen."""
    seen_ns = evidence.gone_wall_ns.get(dead)
    own = [item for item in raised if not item.is_inside and not item.lost_peer]
    if raised and seen_ns is not None and raised[0] not in own and not raised[0].lost_peer:
        own = [*raised[:1], *own] if raised[0].wall_ns < seen_ns - _SOON_NS else own
    earlier = [item for item in own if seen_ns is not None and item.wall_ns < seen_ns and not item.is_of_thread]
    after = {item.rank for item in raised if item not in own}
    return [
        _died(evidence, dead, after, after_ns=max((item.wall_ns for item in earlier), default=None)),
        *_by_place(evidence, (_raised(evidence, item, Certainty.LIKELY) for item in own)),
    ]


def _without_death(evidence: Evidence, raised: list[_Raise]) -> list[Verdict]:
    """What was raised outside of a collective, and what came before that and is no lost peer; else what was first."""
    own = [item for item in raised if not item.is_inside]
    first = raised[:1]
    if first and (not own or (first[0] not in own and not first[0].lost_peer)):
        own = [*first, *own]
    left = _exited(evidence, raised, own)
    lost_before = bool(own) and bool(first) and first[0] not in own and _may_have_closed(evidence)
    sure = len(own) == 1 and not own[0].is_inside and left is None and not lost_before
    followers = [item for item in raised if item not in own]
    if left is not None and all(item.is_inside and item.wall_ns > left.began_wall_ns for item in own):
        return [replace(left, followers=tuple(sorted({item.rank for item in raised})))]
    certainty = Certainty.CERTAIN if sure else Certainty.LIKELY
    told = _by_place(evidence, (_raised(evidence, item, certainty, followers) for item in own))
    return [*([left] if left is not None else []), *told]


def _by_place(evidence: Evidence, raised: Iterable[Raised]) -> list[Raised]:
    """What several ranks raised at one place and moment is told once: a wrong line fails on all of a thousand ranks."""
    found: dict[Hashable, list[Raised]] = {}
    for one in raised:
        frames = tuple(line for line in one.traceback.splitlines() if line.startswith(_FRAME))
        key = (one.type_name, one.at, frames) if frames and one.inside is None else id(one)
        found.setdefault(key, []).append(one)
    return [_of_all(evidence, alike) for alike in found.values()]


def _of_all(evidence: Evidence, alike: Sequence[Raised]) -> Raised:
    first = alike[0]
    others = {one.ranks[0]: one.message for one in alike if one.message != first.message}
    begun_ns = {one.ranks[0]: one.began_wall_ns for one in reversed(alike)}
    ranks = tuple(dict.fromkeys(one.ranks[0] for one in alike))
    return replace(first, ranks=ranks, others=others, first_by_ns=_first_by_ns(evidence, ranks, begun_ns))


def _first_by_ns(evidence: Evidence, ranks: Sequence[int], begun_ns: Mapping[int, int]) -> int:
    """By how much the first of the ranks, which are in order, was before all others; 0 where clocks do not tell. Of
    each other node its first rank is looked at."""
    first, *others = ranks
    if not others or evidence.emulated or not evidence.clocks_agree:
        return 0
    nodes = evidence.nodes
    by_clock: dict[Hashable, int] = {}
    for rank in others:
        by_clock.setdefault(rank if nodes.get(rank) == nodes.get(first) else nodes.get(rank, rank), rank)
    is_clear = all(
        begun_ns[rank] - begun_ns[first] > _uncertain_ns(evidence, first, rank) for rank in by_clock.values()
    )
    return begun_ns[others[0]] - begun_ns[first] if is_clear else 0


def _uncertain_ns(evidence: Evidence, rank: int, other: int) -> float:
    """Within what the order of two ranks is not known. On one node their clocks are one, unless it was set between
    their starts."""
    log, another = evidence.columns[rank], evidence.columns[other]
    if evidence.nodes.get(rank) == evidence.nodes.get(other):
        return _FIRST_NS if abs(log.wall_offset_ns - another.wall_offset_ns) < _FIRST_NS else math.inf
    apart = apart_ns(log, another)
    return math.inf if apart is None else _FIRST_NS + apart


def _may_have_closed(evidence: Evidence) -> bool:
    """Whether a rank ended without a word, and nobody knows that its launcher ended it."""
    return any(evidence.signals.get(rank) not in _ASKED for rank in evidence.silent)


def _exited(evidence: Evidence, raised: list[_Raise], own: list[_Raise]) -> Exited | None:
    """The first rank that ended by itself with an exit code that is not 0. Where its last call had failed, or another
    rank had raised by itself, it followed that, and is told only where nothing else is."""
    exits = sorted(_exits(evidence, {item.rank for item in raised}), key=lambda item: item[0])
    clean = [one for one in exits if not has_failed(evidence.columns[one[1]])]
    chosen = clean or ([] if raised else exits)
    if not chosen or any(item.wall_ns < chosen[0][0] and not item.lost_peer for item in own):
        return None
    wall_ns, rank, note = chosen[0]
    others = tuple(sorted({one[1] for one in exits} - {rank}))
    sure = bool(clean) and not others and all(item.is_inside and item.wall_ns > wall_ns for item in own)
    return Exited(
        certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
        began_wall_ns=wall_ns,
        ranks=(rank, *others),
        at=_moment(note),
        code=note.data["code"],
        last=last_call(evidence.logs[rank]),
        others={one[1]: one[2].data["code"] for one in exits if one[1] != rank},
    )


def _exits(evidence: Evidence, raised: set[int]) -> Iterator[tuple[int, int, Note]]:
    for rank, log in evidence.logs.items():
        for note in log.notes:
            code = note.data.get("code") if note.kind == "exit" else None
            told = evidence.interrupted and code == INTERRUPTED
            if code and not told and rank not in raised:
                yield evidence.wall_ns(rank, note.time_ns), rank, note


def first_dead(evidence: Evidence) -> int | None:
    """The silent rank that was gone first: it was seen, or it is the only one and the others lost their connections
    before anything else. Not where its end was seen, and another one before it."""
    if evidence.died_first is not None:
        return evidence.died_first
    if len(evidence.silent) != 1 or not evidence.silent.isdisjoint(evidence.gone_wall_ns):
        return None
    first = next((item for item in _all_raised(evidence) if item.is_an_end), None)
    return next(iter(evidence.silent)) if first is None or first.lost_peer else None


def death_is_certain(evidence: Evidence, rank: int) -> bool:
    """Whether it was seen to be gone before any other rank failed."""
    return rank == evidence.died_first and not evidence.deaths_seen_late and not evidence.perhaps_told


def _raised(evidence: Evidence, item: _Raise, certainty: Certainty, followers: Sequence[_Raise] = ()) -> Raised:
    inside = raised_inside(evidence.columns[item.rank], item.note)
    later = {other.rank for other in followers if other.wall_ns >= item.wall_ns}
    data = item.note.data
    return Raised(
        certainty=certainty,
        began_wall_ns=item.wall_ns,
        ranks=(item.rank,),
        at=_moment(item.note),
        type_name=str(data.get("type", "an exception")),
        message=str(data.get("text", "")),
        traceback="".join(traceback_of(evidence.logs[item.rank].notes, data)),
        inside=Call(rank=item.rank, collective=inside) if inside is not None else None,
        last=last_call(evidence.logs[item.rank]),
        followers=tuple(sorted(later)),
        earlier=tuple(sorted({other.rank for other in followers} - later)),
        was_outlived=item.was_outlived,
    )


def _no_end(evidence: Evidence, alike: list[_Raise], *, alone: bool) -> Raised:
    """One of a thread is likely where nothing else is said: what the thread did is not done any more."""
    first, last = alike[0], alike[-1].note.data
    certainty = Certainty.LIKELY if alone and first.is_of_thread else Certainty.HINT
    counted = last.get("nth") if last.get("place") else None  # with those that the log has lost
    times = max(counted or 1, len(alike)) if first.was_outlived else 1
    return replace(_raised(evidence, first, certainty), times=times, last_at=moment_of(last))


def _died(evidence: Evidence, rank: int, raised: set[int], after_ns: int | None) -> Died:
    """after_ns: when something was raised that may be its cause."""
    last = last_call(evidence.logs[rank]) if rank in evidence.logs else None
    certain = death_is_certain(evidence, rank) and after_ns is None
    began_ns = evidence.wall_ns(rank, last.collective.time_created_ns) if last is not None else 0
    gone_ns = evidence.gone_wall_ns
    before = {other for other, ns in gone_ns.items() if ns < gone_ns.get(rank, 0)}
    return Died(
        certainty=Certainty.HINT if evidence.perhaps_told else Certainty.CERTAIN if certain else Certainty.LIKELY,
        began_wall_ns=began_ns if after_ns is None else max(began_ns, after_ns + 1),
        ranks=(rank,),
        last=last,
        followers=tuple(sorted((evidence.silent | raised) - {rank} - before)),
        known_by=_known_by(evidence, rank),
        code=evidence.exit_codes.get(rank),
        signal=0 if rank in evidence.exit_codes else evidence.signals.get(rank),
    )


def _known_by(evidence: Evidence, rank: int) -> KnownBy:
    if rank != evidence.died_first:
        return KnownBy.CONNECTIONS if any(item.is_an_end for item in _all_raised(evidence)) else KnownBy.SILENCE
    if evidence.perhaps_told:
        return KnownBy.PERHAPS_TOLD
    if evidence.deaths_seen_late:
        return KnownBy.CLOCKS if evidence.unknown_clocks else KnownBy.SEEN_LATE
    return KnownBy.SEEN


def last_call(log: RankLog) -> Call | None:
    if not log.collectives:
        return None
    return Call(rank=log.rank, collective=log.collectives[-1])


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
    if log.failed[last]:
        return None if _was_refused(call, note) else call
    if call.is_on_device:
        return call if is_of_backend(note) else None
    return call if _holds_thread(log, call, note) else None


def raised_by_itself(log: LogColumns, note: Note) -> bool:
    """Whether nothing says that a peer was lost before."""
    return raised_inside(log, note) is None and not says_lost_peer(note)


def _main_waits(log: LogColumns, note: Note) -> bool:
    before = np.flatnonzero(log.begun_ns <= note.time_ns)
    if not len(before) or log.ended_ns[before[-1]] != NOT_ENDED:
        return False
    call = log.collective(int(before[-1]))
    return not call.is_on_device and call.thread_id == _main_thread(log) and is_waited_for(log, call)


def _main_thread(log: LogColumns) -> int:
    """By its number; where none has that of the process, the first that issued a call."""
    return log.pid if (log.thread == log.pid).any() else int(log.thread[0])


def _was_refused(call: Collective, note: Note) -> bool:
    """By the backend, before any peer had to do with it: for its arguments, say."""
    return call.failure is not None and call.failure.at_issue and not says_lost_peer(note)


def _holds_thread(log: LogColumns, call: Collective, note: Note) -> bool:
    """Whether the thread that raised may be in the open call: it issued it, and waits for its end."""
    is_of_main = call.thread_id == _main_thread(log)
    return is_of_main is not bool(note.data.get("thread")) and is_waited_for(log, call)


def is_waited_for(log: LogColumns, call: Collective) -> bool:
    """Whether somebody waits for it, as far as the log says. A message may be one that was only posted, which shows
    where waits are recorded."""
    if call.time_waited_ns is not None:
        return True
    return not call.is_async and not (call.is_p2p and bool((log.waited_ns >= 0).any()))


def is_of_backend(note: Note) -> bool:
    """Whether a work was what raised it, as NCCL's do when they wait too long."""
    return note.data.get("type") == "DistBackendError"


def _moment(note: Note) -> Moment | None:
    return moment_of(note.data)
