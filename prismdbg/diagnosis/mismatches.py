"""Ranks that called different things where they should have met: the first place in each group, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from prismdbg.diagnosis.collective_key import NOBODY, RECEIVE_ANY, SEND, CollectiveKey, collective_key
from prismdbg.diagnosis.cross_rank import Numbers, groups, is_op, ops, rows_of
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.match import PER_PEER, WRONG, Match, MatchState, match, match_message, signature, signatures
from prismdbg.diagnosis.verdict import Call, Certainty, Verdict
from prismdbg.diagnosis.wording import rank_list
from prismdbg.log.columns import Bools, LogColumns
from prismdbg.log.segment import Ints
from prismdbg.model.collective import Collective, Group
from prismdbg.model.moment import Moment

_LOOK_AHEAD = 6
_LONGEST_SHIFT = 4

Calls = Mapping[int, Collective]  # by rank
_Picked = tuple[int, LogColumns, Ints]  # a rank, its log, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch(Verdict):
    """`calls` side by side, those out of line first; `state` and `difference` are of the first against the others.

    shift: how many calls the first rank seems to have left out (or to have made too many, where negative); 0: not seen.
    """

    key: CollectiveKey
    group: Group
    calls: tuple[Call, ...]
    state: MatchState
    difference: str
    has_majority: bool
    later: int
    shift: int

    kind = "mismatch"

    @property
    def moment(self) -> Moment:
        return self.calls[0].collective.moment

    @property
    def text(self) -> str:
        where = f"in group {self.group.title} {self.key}"
        if self.has_majority:
            return f"{rank_list(self.ranks)} issued a different call {where}: {self.difference} ({self.state})"
        return f"the ranks do not agree {where}: {self.difference} ({self.state})"

    @property
    def lines(self) -> tuple[str, ...]:
        lines = [call.text for call in self.calls]
        if self.shift:
            verb = "have skipped" if self.shift > 0 else "have issued"
            more = "" if self.shift > 0 else " more than the others"
            lines.append(
                f"rank {self.ranks[0]} seems to {verb} {_calls(abs(self.shift))}{more}: later calls match again"
            )
        if self.later:
            lines.append(f"{self.later} later collectives of this group do not match either")
        return tuple(lines)

    def details(self) -> dict[str, Any]:
        return {
            "state": str(self.state),
            "group": self.group.name,
            "sequence": self.key.seq,
            "shift": self.shift,
            "later": self.later,
            "calls": [call.to_json() for call in self.calls],
        }


def find_mismatches(evidence: Evidence) -> list[Verdict]:
    """At most one for each group: what comes after the first is its consequence."""
    found: list[Verdict] = []
    for name in groups(evidence):
        if not evidence.is_one_group(name):
            continue  # what is issued under it in one log has nothing to do with that in another
        group_calls = _GroupCalls(evidence, name)
        wrong = [
            place for place in [*group_calls.suspects(), *group_calls.suspects(p2p=True)] if group_calls.is_wrong(place)
        ]
        for place in sorted(wrong, key=lambda place: place.began_wall_ns):
            calls = group_calls.calls(place)
            key = group_calls.key(calls)
            if _is_wrong(key, calls):  # in a damaged log columns may differ where the calls do not
                found.append(_verdict(evidence, group_calls, key, calls, len(wrong) - 1))
                break
    return found


@dataclass(frozen=True, slots=True)
class _Place:
    """Where ranks met: by rank the row of its log. is_sure: what they called differs, whatever their tensors are."""

    rows: Mapping[int, int]
    began_wall_ns: int
    is_sure: bool


class _GroupCalls:
    """Of one group. Compared are columns; calls are decoded where these differ."""

    def __init__(self, evidence: Evidence, name: str) -> None:
        self._evidence = evidence
        self.group = evidence.group(name)
        self._collectives = rows_of(evidence, name)
        self._messages = rows_of(evidence, name, p2p=True)
        self._known: dict[tuple[object, ...], bool] = {}  # which calls were found to be wrong

    def suspects(self, *, p2p: bool = False) -> Iterator[_Place]:
        """Where ranks passed something else, or ends of a message differ in size, in the order of sequence numbers."""
        rows = self._messages if p2p else self._collectives
        if len(rows) < 2:
            return
        logs = [(rank, self._evidence.columns[rank], picked) for rank, picked in rows.items()]
        logs = self._with_known_sources(logs) if p2p else logs
        if len(logs) < 2:
            return
        rank, row, began = (np.concatenate(parts) for parts in zip(*map(_placed, logs), strict=True))
        keys = self._message_keys(logs) if p2p else [np.concatenate([log.seq[picked] for _, log, picked in logs])]
        compared = self._sizes(logs) if p2p else self._passed(logs)
        order = np.lexsort((rank, *keys))
        new = np.zeros(len(order), dtype=np.bool_)
        new[:1] = True
        for key in keys:
            new[1:] |= np.diff(key[order]) != 0
        starts = np.flatnonzero(new)
        differ = [np.minimum.reduceat(c[order], starts) != np.maximum.reduceat(c[order], starts) for c in compared]
        ends = np.append(starts[1:], len(order))
        for number in np.flatnonzero(np.logical_or.reduce(differ)):
            met = order[starts[number] : ends[number]]
            yield _Place(
                rows=dict(zip(rank[met].tolist(), row[met].tolist(), strict=True)),
                began_wall_ns=int(began[met].min()),
                is_sure=not p2p and bool(differ[0][number]),
            )

    def _passed(self, logs: list[_Picked]) -> list[Ints]:
        """What is surely wrong where it differs; and the tensors, which may differ for some operators. Of those whose
        tensors are all free, only the element type is compared: they differ in each call of an uneven job."""
        numbers = Numbers()
        columns = [(ops(numbers, log, rows), log.reduce_op[rows], log.root[rows]) for _, log, rows in logs]
        sure = [(op * 256 + reduce_op) * (1 << 32) + root for op, reduce_op, root in columns]
        tensors = [
            np.where(is_op(log, PER_PEER, rows), log.first_type[rows], log.tensors[rows]) for _, log, rows in logs
        ]
        return [np.concatenate(sure), np.concatenate(tensors)]

    def _sizes(self, logs: list[_Picked]) -> list[Ints]:
        return [np.concatenate([log.size_bytes[rows] for _, log, rows in logs])]

    def _with_known_sources(self, logs: list[_Picked]) -> list[_Picked]:
        """Without messages to ranks that receive from any source under that tag: they number what they receive without
        knowing from whom, the senders by whom they send to."""
        of_any: set[tuple[int, int]] = set()  # target, tag
        for rank, log, rows in logs:
            if rank in self.group.ranks:
                here = self.group.ranks.index(rank)
                of_any |= {(here, int(tag)) for tag in np.unique(log.tag[rows[is_op(log, {RECEIVE_ANY}, rows)]])}
        if not of_any:
            return logs
        return [(rank, log, rows[~self._is_to(rank, log, rows, of_any)]) for rank, log, rows in logs]

    def _is_to(self, rank: int, log: LogColumns, rows: Ints, targets: Collection[tuple[int, int]]) -> Bools:
        here = self.group.ranks.index(rank) if rank in self.group.ranks else NOBODY
        target, tag = np.where(is_op(log, {SEND}, rows), log.root[rows], here), log.tag[rows]
        found = np.zeros(len(rows), dtype=np.bool_)
        for wanted, with_tag in targets:
            found |= (target == wanted) & (tag == with_tag)
        return found

    def _message_keys(self, logs: list[_Picked]) -> list[Ints]:
        """Sequence number, tag, source and target, as `collective_key` has them."""
        columns = []
        for rank, log, rows in logs:
            here = self.group.ranks.index(rank) if rank in self.group.ranks else NOBODY
            sends, peer = is_op(log, {SEND}, rows), log.root[rows]
            source, target = np.where(sends, here, peer), np.where(sends, peer, here)
            columns.append((log.seq[rows], log.tag[rows], source, target))
        return [np.concatenate(parts) for parts in zip(*columns, strict=True)]

    def is_wrong(self, place: _Place) -> bool:
        if place.is_sure:
            return True
        alike = tuple((rank, *self._told(rank, row)) for rank, row in place.rows.items())
        if alike not in self._known:  # a scatter's root has other tensors in each call
            self._known[alike] = _is_wrong(self.key(calls := self.calls(place)), calls)
        return self._known[alike]

    def _told(self, rank: int, row: int) -> tuple[str, int, int, int]:
        """What decides whether a call matches others."""
        log = self._evidence.columns[rank]
        return log.texts.get(int(log.op[row]), ""), int(log.reduce_op[row]), int(log.root[row]), int(log.tensors[row])

    def calls(self, place: _Place) -> Calls:
        return {rank: self._evidence.columns[rank].collective(row) for rank, row in place.rows.items()}

    def key(self, calls: Calls) -> CollectiveKey:
        rank, call = next(iter(calls.items()))
        return collective_key(call, rank, self.group)

    def call(self, rank: int, seq: int) -> Collective | None:
        """The rank's collective of that number."""
        log = self._evidence.columns[rank]
        rows = self._collectives[rank]
        found = rows[log.seq[rows] == seq]
        return log.collective(int(found[-1])) if len(found) else None


def _placed(picked: _Picked) -> tuple[Ints, Ints, Ints]:
    """The rank, the row and the time of each call."""
    rank, log, rows = picked
    return np.full(len(rows), rank), rows, log.begun_ns[rows] + log.wall_offset_ns


def _is_wrong(key: CollectiveKey, calls: Calls) -> bool:
    if len(calls) < 2:
        return False
    if key.is_p2p:
        return key.source >= 0 and len(calls) == 2 and _match_ends(calls).state in WRONG
    return len(set(signatures(calls).values())) > 1


def _match_ends(calls: Calls) -> Match:
    first, second = calls.values()
    return match_message(first, second) if first.op == SEND else match_message(second, first)


def _verdict(evidence: Evidence, group_calls: _GroupCalls, key: CollectiveKey, calls: Calls, later: int) -> Mismatch:
    said = signatures(calls)
    votes = Counter(said.values()).most_common(2)
    size = max(group_calls.group.size, len(calls))  # of a few logs of a large group, most may be the odd ones
    has_majority = not key.is_p2p and (len(votes) == 1 or 2 * votes[0][1] > size)
    usual = votes[0][0] if has_majority else said[min(calls)]
    right = sorted(rank for rank, its in said.items() if its == usual)
    wrong = sorted(calls.keys() - right) if not key.is_p2p else sorted(calls)
    result = _match_ends(calls) if key.is_p2p else match(calls[right[0]], calls[wrong[0]])
    shown = wrong if key.is_p2p else [*wrong, *right]
    return Mismatch(
        certainty=Certainty.CERTAIN,
        began_wall_ns=_began(evidence, calls),
        ranks=tuple(wrong if has_majority else shown),
        key=key,
        group=group_calls.group,
        calls=tuple(Call(rank=rank, collective=calls[rank]) for rank in shown),
        state=result.state,
        difference=result.difference,
        has_majority=has_majority,
        later=later,
        shift=_shift(group_calls, key, wrong[0], right[0]) if has_majority else 0,
    )


def _shift(group_calls: _GroupCalls, start: CollectiveKey, rank: int, other: int) -> int:
    """By how many calls `rank` runs ahead of `other` from `start` on, if its next calls show that."""
    mine = _signatures(group_calls, start, rank)
    theirs = _signatures(group_calls, start, other)
    for shift in range(1, _LONGEST_SHIFT + 1):
        for sign, early, late in ((1, mine, theirs[shift:]), (-1, theirs, mine[shift:])):
            pairs = list(zip(early, late, strict=False))[:_LOOK_AHEAD]
            if len(pairs) > 1 and all(a == b for a, b in pairs):
                return sign * shift
    return 0


def _signatures(group_calls: _GroupCalls, start: CollectiveKey, rank: int) -> list[object]:
    ahead = (group_calls.call(rank, start.seq + n) for n in range(_LOOK_AHEAD + _LONGEST_SHIFT))
    return [signature(call) for call in ahead if call is not None]


def _began(evidence: Evidence, calls: Calls) -> int:
    return min(evidence.wall_ns(rank, call.time_created_ns) for rank, call in calls.items())


def _calls(number: int) -> str:
    return "a call" if number == 1 else f"{number} calls"
