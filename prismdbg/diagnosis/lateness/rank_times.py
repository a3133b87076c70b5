"""What each rank did over the time of a job: when it waited for others and for which, and when others waited for it."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.stragglers import Waits, held_ns, median_of_others, wait_begins_ns
from prismdbg.diagnosis.lateness.time_parts import PARTS, Floats, longest_in, part_at, shares
from prismdbg.diagnosis.stalls import Stall
from prismdbg.diagnosis.stops import Stopped
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.log.columns import NOT_ENDED, LogColumns
from prismdbg.log.distinct import kinds_of
from prismdbg.log.segment import Ints
from prismdbg.model.collective import Frame
from prismdbg.model.frame import source_of
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS

_NONE = np.zeros(0, dtype=np.int64)
_ENDLESS = int(np.iinfo(np.int64).max)


def op_name(op: str) -> str:
    """`all_reduce`."""
    return OPS[op].label if op in OPS else op


def line_name(frame: Frame | None) -> str:
    """`train.py:61`; empty where no stack was recorded."""
    return "" if frame is None else f"{frame.filename.rpartition('/')[2]}:{frame.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """For `ranks`, which came last to a collective, or have `never_came`: then it lasts to the end of the job;
    waited_ns: None where that is not known. op and at (`all_reduce`, `train.py:61`): of the rank's own call; `moment`
    is of that rank, too."""

    ranks: tuple[int, ...]
    waited_ns: int | None
    moment: Moment
    op: str
    at: str
    never_came: bool = False

    @property
    def length(self) -> int:
        """To compare waits by: one that nobody knows the end of is longer than any other."""
        return self.waited_ns if self.waited_ns is not None else _ENDLESS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LongestWaits:
    """Of a rank, by part of the time the longest wait that reaches into it; arrays of shape (PARTS,). waited_ns: 0
    where there is none. late: the rank that came last. call: a position in `calls`, operators with their stacks."""

    waited_ns: Ints
    late: Ints
    step: Ints
    nth: Ints
    call: Ints
    calls: tuple[tuple[str, tuple[Frame, ...]], ...]

    def within(self, parts: slice) -> Wait | None:
        """The longest that reaches into these parts."""
        part = parts.start + int(self.waited_ns[parts].argmax())
        if not self.waited_ns[part]:
            return None
        op, stack = self.calls[int(self.call[part])]
        return Wait(
            ranks=(int(self.late[part]),),
            waited_ns=int(self.waited_ns[part]),
            moment=Moment(int(self.step[part]), int(self.nth[part])),
            op=op_name(op),
            at=line_name(source_of(stack)),
        )

    def longest_part(self) -> tuple[int, int]:
        """How long the longest is, and the first part that it reaches into."""
        part = int(self.waited_ns.argmax())
        return int(self.waited_ns[part]), part


_ZEROS = np.zeros(PARTS, dtype=np.int64)
_NO_SHARE: Floats = np.zeros(PARTS)
NO_WAITS = LongestWaits(waited_ns=_ZEROS, late=_ZEROS, step=_ZEROS, nth=_ZEROS, call=_ZEROS, calls=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A wait in a collective to which ranks never came, in the parts from `first` to `last`."""

    first: int
    last: int
    wait: Wait


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankTime:
    """By part of the time, shape (PARTS,): the share, 0 to 1, in which the rank waited for one that came later, and in
    which it was awaited by the others, the median of them. seen: whether its log covers some of the part. waits, stays:
    of this rank; delays, absences: of others for this rank, in calls of this rank and of the first one that waits."""

    waiting: Floats = field(default_factory=_NO_SHARE.copy)
    awaited: Floats = field(default_factory=_NO_SHARE.copy)
    seen: NDArray[np.bool_] = field(default_factory=lambda: _ZEROS > 0)
    waits: LongestWaits = NO_WAITS
    delays: LongestWaits = NO_WAITS
    stays: tuple[Stay, ...] = ()
    absences: tuple[Stay, ...] = ()

    def wait_in(self, parts: slice) -> Wait | None:
        """The longest one of this rank that reaches into these parts."""
        return _longest(self.waits.within(parts), self.stays, parts)

    def delay_in(self, parts: slice) -> Wait | None:
        """The longest one of others for this rank."""
        return _longest(self.delays.within(parts), self.absences, parts)

    def call_in(self, parts: slice) -> Wait | None:
        """Of these two the longer one that is in a call of this rank."""
        waits = (self.wait_in(parts), self.delays.within(parts))
        return max((wait for wait in waits if wait is not None), key=lambda each: each.length, default=None)

    def longest_part(self) -> tuple[int, int]:
        """How long the longest wait of this rank or for it is, in ns, and the first part that it reaches into."""
        stays = [(stay.wait.length, stay.first) for stay in (*self.stays, *self.absences)]
        return max([self.waits.longest_part(), self.delays.longest_part(), *stays], key=lambda each: each[0])


NO_TIME = RankTime()


def _longest(wait: Wait | None, stays: Iterable[Stay], parts: slice) -> Wait | None:
    found = [stay.wait for stay in stays if stay.first < parts.stop and parts.start <= stay.last]
    return max([*found, *([wait] if wait is not None else [])], key=lambda each: each.length, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waited:
    """Rows of a rank's log; of each how long somebody waited there, and for which rank."""

    rows: Ints = field(default_factory=lambda: _NONE)
    waited_ns: Ints = field(default_factory=lambda: _NONE)
    late: Ints = field(default_factory=lambda: _NONE)

    def only(self, wanted: NDArray[np.bool_]) -> _Waited:
        return _Waited(rows=self.rows[wanted], waited_ns=self.waited_ns[wanted], late=self.late[wanted])

    def and_also(self, other: _Waited) -> _Waited:
        return _Waited(
            rows=np.concatenate([self.rows, other.rows]),
            waited_ns=np.concatenate([self.waited_ns, other.waited_ns]),
            late=np.concatenate([self.late, other.late]),
        )


def rank_times(
    evidence: Evidence, known: Iterable[Waits], stops: Iterable[Stopped], running: Set[int], edges: Floats
) -> dict[int, RankTime]:
    """By rank. known: of `waits_by_group`. running: ranks whose time goes on after the end of their logs. edges: shape
    (PARTS + 1,), times of the clock in ns."""
    waits, delays = _by_rank(evidence, known)
    stays, absences = _by_stall(evidence, stops, edges)
    found = {}
    for rank, log in evidence.columns.items():
        own, of_others = waits[rank], delays[rank]
        begun = wait_begins_ns(log, own.rows) + log.wall_offset_ns
        came = log.begun_ns[of_others.rows] + log.wall_offset_ns
        found[rank] = RankTime(
            waiting=_with(shares(begun, begun + own.waited_ns, edges), stays.get(rank, ()), edges),
            awaited=_with(shares(came - of_others.waited_ns, came, edges), absences.get(rank, ()), edges),
            seen=_seen(log, edges, rank in running),
            waits=_longest_waits(log, own, begun, edges),
            delays=_longest_waits(log, of_others, came - of_others.waited_ns, edges),
            stays=tuple(stay for stay, _ in stays.get(rank, ())),
            absences=tuple(stay for stay, _ in absences.get(rank, ())),
        )
    return found


def _by_rank(evidence: Evidence, known: Iterable[Waits]) -> tuple[dict[int, _Waited], dict[int, _Waited]]:
    """The waits of each rank for others, and those of others for it."""
    waits, delays = ({rank: _Waited() for rank in evidence.columns} for _ in range(2))
    for group in known:
        numbers, longer_ns, last = np.array(group.ranks), held_ns(evidence, group), group.last
        late_ns = median_of_others(longer_ns)
        for place, rank in enumerate(group.ranks):
            waited = np.flatnonzero(longer_ns[:, place] > 0)
            late = np.flatnonzero((last == place) & (late_ns > 0))
            rows = group.rows[place]
            own = _Waited(rows=rows[waited], waited_ns=longer_ns[waited, place], late=numbers[last[waited]])
            of_others = _Waited(rows=rows[late], waited_ns=late_ns[late], late=numbers[last[late]])
            waits[rank], delays[rank] = waits[rank].and_also(own), delays[rank].and_also(of_others)
    return waits, delays


_Span = tuple[int, int]  # times of the clock, ns
_Stays = dict[int, list[tuple[Stay, _Span]]]


def _by_stall(evidence: Evidence, stops: Iterable[Stopped], edges: Floats) -> tuple[_Stays, _Stays]:
    """By rank the collectives in which it waits for ranks that never came, and those to which it never came."""
    stays: _Stays = {}
    absences: _Stays = {}
    certain = [stop for stop in stops if stop.certainty is not Certainty.HINT]  # else the job may only have ended
    for stall in (stall for stop in certain for stall in stop.circle or (stop.stall,) if stall.never_came):
        waited = {wait.rank: _stay(evidence, stall, place, edges) for place, wait in enumerate(stall.waits)}
        for rank, stay in waited.items():
            stays.setdefault(rank, []).append(stay)
        first = waited[stall.first.rank]
        for rank in stall.never_came:
            absences.setdefault(rank, []).append(first)
    return stays, absences


def _stay(evidence: Evidence, stall: Stall, place: int, edges: Floats) -> tuple[Stay, _Span]:
    rank, call = stall.waits[place].rank, stall.waits[place].collective
    begun = evidence.wall_ns(rank, call.time_created_ns)
    is_known = call.duration_ns is not None or evidence.ended_wall_ns > 0
    ended = int(edges[-1]) if call.duration_ns is None else begun + call.duration_ns
    begun = begun if is_known else min(begun, int(edges[-2]))  # the last part is seen to wait
    first, last = part_at(np.array([begun, ended]), edges).tolist()
    wait = Wait(
        ranks=stall.never_came,
        waited_ns=max(ended - begun, 0) if is_known else None,
        moment=call.moment,
        op=op_name(call.op),
        at=line_name(call.source),
        never_came=True,
    )
    return Stay(first=first, last=last, wait=wait), (begun, max(ended, begun))


def _with(known: Floats, stays: Iterable[tuple[Stay, _Span]], edges: Floats) -> Floats:
    spans = np.array([span for _, span in stays], dtype=np.int64).reshape(-1, 2)
    return np.clip(known + shares(spans[:, 0], spans[:, 1], edges), 0.0, 1.0) if len(spans) else known


def _seen(log: LogColumns, edges: Floats, goes_on: bool) -> NDArray[np.bool_]:
    """From the first call of its whole part to the last time that it has; to the end of the job where one is open."""
    if not len(log):
        return _ZEROS > 0
    goes_on = goes_on or bool((log.ended_ns == NOT_ENDED).any())
    last = float(max(log.ended_ns.max(), log.begun_ns.max())) + log.wall_offset_ns
    seen: NDArray[np.bool_] = (edges[1:] > whole_since_ns(log) + log.wall_offset_ns) & (
        edges[:-1] < (edges[-1] if goes_on else last)
    )
    return seen


def whole_since_ns(log: LogColumns) -> int:
    """From when on, by its own clock, every collective is here: single ones of long before say nothing about the time
    between. `log` has one at least."""
    return int(log.begun_ns[log.first_of_whole :].min())


def _longest_waits(log: LogColumns, waited: _Waited, begun: Ints, edges: Floats) -> LongestWaits:
    here = begun + waited.waited_ns >= edges[0]  # a single one of long before is not in the first part
    waited, begun = waited.only(here), begun[here]
    longest = longest_in(begun, begun + waited.waited_ns, edges)
    found = longest >= 0
    if not found.any():
        return NO_WAITS
    rows = np.where(found, waited.rows[longest], 0)
    first_of_kind, kind = kinds_of(log.op[rows], log.stack[rows])
    kinds = rows[first_of_kind].tolist()
    return LongestWaits(
        waited_ns=np.where(found, waited.waited_ns[longest], 0),
        late=waited.late[longest],
        step=log.step[rows],
        nth=log.nth[rows],
        call=kind,
        calls=tuple((log.texts.get(int(log.op[row]), ""), log.frames(int(log.stack[row]))) for row in kinds),
    )
