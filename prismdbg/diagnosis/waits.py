"""The open and failed calls in which a rank waited when its log ended, without those that it had left behind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

import numpy as np
from numpy.typing import NDArray

from prismdbg.diagnosis.collective_key import CollectiveKey, collective_key
from prismdbg.diagnosis.cross_rank import rows_of
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.failures import is_of_backend, is_waited_for
from prismdbg.diagnosis.progress import Progress
from prismdbg.diagnosis.stalls import Wait
from prismdbg.log.columns import NOT_ENDED, LogColumns
from prismdbg.log.distinct import distinct
from prismdbg.log.segment import Ints
from prismdbg.model.collective import Collective, Group, State
from prismdbg.model.ops import FOR_ALL


def find_waits(evidence: Evidence, ranks: Mapping[int, Progress]) -> list[Wait]:
    """Not of ranks that ended well, nor of works that nobody waited for: what they left open does not matter. Where a
    log breaks off, nobody waits: the rank may have gone on."""
    joined = _Joined(ranks)
    found = [
        wait
        for rank, log in evidence.columns.items()
        if ranks[rank].exit_code != 0 or ranks[rank].incident is not None
        for wait in _left_open(rank, log, joined)
        if not ranks[rank].lost or wait.collective.state is State.FAILED
    ]
    groups = {name: evidence.group(name) for name in {wait.collective.group for wait in found}}
    ended = _ended_in(evidence, found, groups)
    return [
        wait
        for wait in found
        if not _lacks_only_its_end(ranks[wait.rank], wait, groups[wait.collective.group], ended)
        and not _was_left(evidence, ranks[wait.rank], wait)
    ]


def _was_left(evidence: Evidence, progress: Progress, wait: Wait) -> bool:
    """By a rank that raised while nobody waited for it, on the host."""
    call = wait.collective
    if progress.incident is None or call.is_on_device or call.state is not State.SCHEDULED:
        return False
    return not is_waited_for(evidence.columns[wait.rank], call)


def _left_open(rank: int, log: LogColumns, joined: _Joined) -> Iterator[Wait]:
    """Where its thread did not go on well beyond the step it was issued in."""
    calls = _CallsOf(log)
    for row in calls.open:
        call = log.collective(int(row))
        if call.failure is not None and call.failure.at_issue:
            continue  # it was refused before anybody could wait in it
        wait = Wait(rank, call, log.wall_offset_ns, is_sure=calls.is_sure(int(row), call))
        went_on = calls.went_on_after(wait.collective)
        if not went_on or (calls.holds_up_later(int(row), wait.collective) and joined.lacks_a_member(wait)):
            yield wait


class _CallsOf:
    """What the calls of one rank that ended say of those that did not."""

    def __init__(self, log: LogColumns) -> None:
        ended = (log.ended_ns != NOT_ENDED) & ~log.failed
        self.open = np.flatnonzero(~ended)
        self._log = log
        self._last_has_ended = bool(len(ended) and ended[-1])
        self._last_steps = _highest(log.thread[ended], log.step[ended])
        self._last_rows = _highest(log.thread[ended], np.flatnonzero(ended))
        self._last_ended = self._last_of_group(ended)
        self._last_open = self._last_of_group(~ended)

    def _last_of_group(self, wanted: NDArray[np.bool_]) -> dict[int, int]:
        rows = np.flatnonzero(wanted & ~self._log.is_p2p)
        return _highest(self._log.group[rows], rows)

    def went_on_after(self, call: Collective) -> bool:
        """On a device the last calls of a thread end later."""
        log = self._log
        if call.is_on_device:
            return self._last_steps.get(call.thread_id, -1) > call.moment.step
        if call.is_p2p and log.step[-1] > call.moment.step + 1:
            return True  # whichever thread waits in it: the program does without the message
        return self._last_has_ended and bool(log.step[-1] > call.moment.step and log.thread[-1] == call.thread_id)

    def is_sure(self, row: int, call: Collective) -> bool:
        """Whether its rank waits in it, as far as is known: of an asynchronous one, whose wait is not always recorded,
        until its thread has completed another call; so of a message, where no waits are recorded at all."""
        if call.is_on_device or call.time_waited_ns is not None or not (call.is_async or call.is_p2p):
            return True
        went_on = self._last_rows.get(call.thread_id, -1) > row
        return not went_on and (call.is_async or is_waited_for(self._log, call))

    def holds_up_later(self, row: int, call: Collective) -> bool:
        """Whether later calls of its own group are open, too, and none has ended: a device comes to them in order, so
        that it may be this one which keeps them open. Calls of other groups pass it by."""
        group = int(self._log.group[row])
        if not call.is_on_device or call.is_p2p:
            return False
        return self._last_open.get(group, -1) > row > self._last_ended.get(group, -1)


class _Joined:
    """Which members issued their part of a call; asked once for each call, whoever waits in it."""

    def __init__(self, ranks: Mapping[int, Progress]) -> None:
        self._ranks = ranks
        self._lacking: dict[CollectiveKey, bool] = {}

    def lacks_a_member(self, wait: Wait) -> bool:
        group = self._ranks[wait.rank].group(wait.collective.group)
        key = collective_key(wait.collective, wait.rank, group)
        if key not in self._lacking:
            members = (self._ranks[rank] for rank in key.members(group) if rank in self._ranks)
            self._lacking[key] = not all(member.has_come(key) for member in members)
        return self._lacking[key]


def _highest(keys: Ints, values: Ints) -> dict[int, int]:
    """By key the highest of its values."""
    found, _, place = distinct(keys)
    highest = np.full(len(found), -1, dtype=np.int64)
    np.maximum.at(highest, place, values)
    return dict(zip(found.tolist(), highest.tolist(), strict=True))


_Ended = Mapping[tuple[str, int], Set[int]]  # by group and sequence number: the ranks


def _ended_in(evidence: Evidence, waits: Iterable[Wait], groups: Mapping[str, Group]) -> _Ended:
    """Which members have ended the collectives that somebody waits in: worked out once for all waits."""
    wanted: dict[str, set[int]] = {}
    for call in (wait.collective for wait in waits):
        if call.is_on_device and not call.is_p2p:
            wanted.setdefault(call.group, set()).add(call.identity.seq)
    found: dict[tuple[str, int], set[int]] = {}
    columns = evidence.columns
    for group, seqs in wanted.items():
        rows_by_rank = rows_of(evidence, group)
        for rank in groups[group].ranks:
            if (rows := rows_by_rank.get(rank)) is None:
                continue
            log = columns[rank]
            ended = rows[(log.ended_ns[rows] != NOT_ENDED) & ~log.failed[rows]]
            for seq in seqs.intersection(log.seq[ended[np.isin(log.seq[ended], list(seqs))]].tolist()):
                found.setdefault((group, seq), set()).add(rank)
    return found


def _lacks_only_its_end(progress: Progress, wait: Wait, group: Group, ended: _Ended) -> bool:
    """On a device an end is written when the device has come to it: a rank that raised or was killed leaves calls open
    in which it did not wait."""
    call, incident = wait.collective, progress.incident
    if not call.is_on_device or call.state is not State.SCHEDULED:
        return False
    return (incident is not None and not is_of_backend(incident)) or _has_ended_elsewhere(wait, group, ended)


def _has_ended_elsewhere(wait: Wait, group: Group, ended: _Ended) -> bool:
    """For one other member, where none goes on before all have joined it; else for all others."""
    call = wait.collective
    have = ended.get((call.group, call.identity.seq), frozenset())
    others, elsewhere = group.size - (wait.rank in group.ranks), len(have) - (wait.rank in have)
    return not call.is_p2p and (elsewhere > 0 if call.op in FOR_ALL else 0 < others <= elsewhere)
