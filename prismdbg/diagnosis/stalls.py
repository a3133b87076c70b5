"""Collectives that some ranks wait in: who waits, who never came, and which of several is the cause of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prismdbg.diagnosis.collective_key import NOBODY, CollectiveKey, collective_key
from prismdbg.diagnosis.progress import Progress
from prismdbg.model.collective import Collective, Group


@dataclass(frozen=True, slots=True)
class Wait:
    """wall_offset_ns: of the clock of the rank's log, where waits of several nodes are compared. is_sure: else its
    rank may have gone on without it."""

    rank: int
    collective: Collective
    wall_offset_ns: int = 0
    is_sure: bool = True

    @property
    def begun_ns(self) -> int:
        return self.collective.time_created_ns + self.wall_offset_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """`never_came`: members whose logs are here and lack it. `unknown`: members without a log, or without a whole one.

    Both are empty where the group is not described, or where every member came and still nothing completed. Of a
    message from any rank, `never_came` are those that have sent it none at all.
    """

    key: CollectiveKey
    group: Group
    waits: tuple[Wait, ...]
    never_came: tuple[int, ...]
    unknown: tuple[int, ...]

    @property
    def first(self) -> Wait:
        return min(self.waits, key=lambda wait: (wait.begun_ns, wait.rank))

    @property
    def waiting_ranks(self) -> tuple[int, ...]:
        return tuple(wait.rank for wait in self.waits)

    @property
    def is_sure(self) -> bool:
        """Whether somebody is known to wait in it."""
        return any(wait.is_sure for wait in self.waits)

    @property
    def is_from_any(self) -> bool:
        return self.key.is_p2p and self.key.source == NOBODY

    @property
    def is_real(self) -> bool:
        """A work that nobody waits for may stay open for ever though every rank came: one such alone is no stall. Nor
        is a message from any rank that nobody waits for, or of which all others have sent some before."""
        if self.is_from_any:
            return bool(self.never_came) and self.is_sure and not self.waits[0].collective.is_async
        if self.never_came or self.unknown or len(self.waits) > 1:
            return True
        only = self.waits[0].collective
        return not only.is_async and not only.is_p2p


def find_stalls(ranks: Mapping[int, Progress], waits: Iterable[Wait], *, from_any: bool = True) -> list[Stall]:
    """One for each collective that a wait is in, first waits first. from_any: also of messages from any rank; a rank
    that serves others may wait for one as long as it likes."""
    by_key: dict[tuple[CollectiveKey, tuple[int, ...]], list[Wait]] = {}  # groups of one name may be different ones
    for wait in waits:
        group = ranks[wait.rank].group(wait.collective.group)
        key = collective_key(wait.collective, wait.rank, group)
        by_key.setdefault((key, group.ranks), []).append(wait)
    stalls = [_stall(ranks, key, found) for (key, _), found in by_key.items()]
    real = [stall for stall in stalls if stall.is_real and (from_any or not stall.is_from_any)]
    return sorted(real, key=lambda stall: stall.first.begun_ns)


def causes(stalls: list[Stall]) -> list[tuple[Stall, ...]]:
    """Those that no other explains: where all missing ranks of one wait in others, these do. Several together where
    they are a circle: their ranks wait for each other."""
    leads = _leads(stalls)
    reached = {i: _reachable(i, leads) for i in leads}
    found: dict[frozenset[int], tuple[Stall, ...]] = {}
    for i in range(len(stalls)):
        if all(i in reached[j] for j in reached[i]):
            circle = frozenset(reached[i] | {i})
            found[circle] = tuple(stalls[j] for j in sorted(circle))
    return list(found.values())


def waiting_for(stalls: list[Stall], cause: tuple[Stall, ...]) -> list[Stall]:
    """The others that this one explains, directly or by way of others, or that miss the same ranks."""
    leads, wanted = _leads(stalls), {i for i, stall in enumerate(stalls) if stall in cause}
    missed = {stall.never_came for stall in cause if stall.never_came}
    return [
        stall
        for i, stall in enumerate(stalls)
        if i not in wanted and (stall.never_came in missed or _reachable(i, leads) & wanted)
    ]


def _leads(stalls: list[Stall]) -> dict[int, set[int]]:
    """By position of each stall those of the stalls that explain it."""
    waits_in: dict[int, list[int]] = {}  # by rank: positions of stalls, in order
    for i, stall in enumerate(stalls):
        for wait in stall.waits:
            if wait.is_sure:
                waits_in.setdefault(wait.rank, []).append(i)
    return {i: _explained_by(i, stall, waits_in) for i, stall in enumerate(stalls)}


def _explained_by(position: int, stall: Stall, waits_in: Mapping[int, list[int]]) -> set[int]:
    """Positions of the stalls in which the ranks wait that this one misses; none if one of them waits nowhere."""
    found: set[int] = set()
    for rank in stall.never_came:
        elsewhere = [i for i in waits_in.get(rank, ()) if i != position]
        if not elsewhere:
            return set()
        found.add(elsewhere[-1])
    return found


def _reachable(start: int, leads: Mapping[int, set[int]]) -> set[int]:
    found: set[int] = set()
    ahead = list(leads[start])
    while ahead:
        position = ahead.pop()
        if position not in found:
            found.add(position)
            ahead += leads[position]
    return found


def _stall(ranks: Mapping[int, Progress], key: CollectiveKey, waits: list[Wait]) -> Stall:
    group = ranks[waits[0].rank].group(key.group)
    waiting = {wait.rank for wait in waits}
    if key.is_p2p and key.source == NOBODY:
        return Stall(
            key=key, group=group, waits=tuple(waits), never_came=_silent(ranks, key, group, waits[0]), unknown=()
        )
    others = [rank for rank in key.members(group) if rank not in waiting]
    return Stall(
        key=key,
        group=group,
        waits=tuple(sorted(waits, key=lambda wait: wait.rank)),
        never_came=tuple(
            rank
            for rank in others
            if rank in ranks and not ranks[rank].has_come(key) and not ranks[rank].cannot_tell(key, group)
        ),
        unknown=tuple(rank for rank in others if rank not in ranks or ranks[rank].cannot_tell(key, group)),
    )


def _silent(ranks: Mapping[int, Progress], key: CollectiveKey, group: Group, wait: Wait) -> tuple[int, ...]:
    """Who has sent nothing to a rank that waits for whoever does; none where it has called anything since, from another
    thread: then it only listens."""
    last = ranks[wait.rank].last
    if last is not None and last.record_id != wait.collective.record_id:
        return ()
    others = (rank for rank in group.ranks if rank in ranks and rank != wait.rank)
    return tuple(rank for rank in others if not ranks[rank].may_have_sent(key, group))
