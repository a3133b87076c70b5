"""Finds a hang while the job runs: a collective that does not complete within a bound, and who never issued it.

A rank that is parked for a capture, and whoever waits for it, does not hang: while any rank is parked nothing is
due, and that time counts for no wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prismdbg.capsule.log_reader import Event
from prismdbg.capsule.stacks import HangPlace
from prismdbg.diagnosis.meeting import Meeting
from prismdbg.diagnosis.progress import Progress
from prismdbg.diagnosis.stalls import Stall, Wait, causes, find_stalls
from prismdbg.diagnosis.wording import and_list, place, rank_list
from prismdbg.model.collective import Collective
from prismdbg.model.moment import Moment

NS_PER_S = 1_000_000_000

_Key = tuple[tuple[int, ...], int, Meeting]  # members, attempt, meeting


@dataclass(frozen=True, slots=True, kw_only=True)
class HangReport:
    """`stall` is the cause; `behind` are ranks that wait elsewhere, in consequence. lasts: the last call of each rank
    that never came."""

    stall: Stall
    waited_ns: int
    lasts: Mapping[int, Collective] = field(default_factory=dict)
    behind: tuple[Wait, ...] = ()

    @property
    def moment(self) -> Moment:
        """Of the rank that waits longest."""
        return self.stall.first.collective.moment

    @property
    def ranks(self) -> tuple[int, ...]:
        """Worth a capsule: the rank that waits longest, and those that never came."""
        return (self.stall.first.rank, *self.stall.never_came)

    @property
    def place(self) -> HangPlace:
        lasts = {rank: self.lasts.get(rank) for rank in self.stall.never_came}
        return HangPlace(
            identity=str(self.stall.first.collective.identity),
            waiting=self.stall.waiting_ranks,
            never_came={rank: "" if last is None else f"{last.moment} {last.place}" for rank, last in lasts.items()},
        )

    @property
    def text(self) -> str:
        stall, call = self.stall, self.stall.first.collective
        waiting = f"{rank_list(stall.waiting_ranks)} waited {self.waited_ns / NS_PER_S:.0f} s in {call.name}"
        where = f"group {stall.group.title} {stall.meeting}, {call.moment}"
        return f"{waiting} ({where}){place(call)}; {self._absent()}"

    def _absent(self) -> str:
        stall = self.stall
        parts = []
        if stall.never_came:
            parts.append(f"{rank_list(stall.never_came)} never issued it")
        if stall.unknown:
            parts.append(f"nothing is known of {rank_list(stall.unknown)}")
        return and_list(parts) if parts else "every rank that is known to take part has issued it"


class HangDetector:
    """`feed` with every event of every rank, then ask what is `due`. Each hang is reported once."""

    def __init__(self, bound_ns: int) -> None:
        self._bound_ns = bound_ns
        self._ranks: dict[int, Progress] = {}
        self._attempts: dict[int, int] = {}
        self._reported: set[_Key] = set()

    def feed(self, rank: int, event: Event, attempt: int = 0) -> None:
        """`attempt` counts the restarts of a rank: what the one before waited in no longer matters."""
        known = self._attempts.get(rank, -1)
        if attempt < known:
            return
        if attempt > known:
            self._attempts[rank] = attempt
            self._ranks[rank] = Progress(rank)
        self._ranks[rank].feed(event)

    def died(self, rank: int, attempt: int = 0) -> None:
        """The process is gone: it waits no more, and what it has not issued it never will."""
        if self._attempts.get(rank) == attempt:
            self._ranks[rank].has_died = True

    def due(self, now_ns: int) -> list[HangReport]:
        """Hangs whose longest wait has reached the bound, causes only. `now_ns` is CLOCK_MONOTONIC."""
        stalls = self._stalls(now_ns)
        reports = []
        for stall in causes(stalls):
            waited_ns = self._elapsed(stall.first.collective.time_created_ns, now_ns)
            if waited_ns < self._bound_ns or self._key(stall) in self._reported:
                continue
            behind = tuple(wait for other in stalls if other is not stall for wait in other.waits)
            lasts = {rank: last for rank in stall.never_came if (last := self._ranks[rank].last) is not None}
            reports.append(HangReport(stall=stall, waited_ns=waited_ns, lasts=lasts, behind=behind))
        if reports:
            self._reported |= {self._key(stall) for stall in stalls}
        return reports

    def suspects(self, now_ns: int) -> bool:
        """Whether somebody has waited for half the bound, and who never came is not parked."""
        return bool(self._stalls(now_ns))

    def _stalls(self, now_ns: int) -> list[Stall]:
        """Half the bound: whoever waits in consequence began later than the first."""
        if any(progress.is_parked for progress in self._ranks.values()):
            return []
        return find_stalls(self._ranks, self._waits_of(self._bound_ns // 2, now_ns))

    def _waits_of(self, least_ns: int, now_ns: int) -> list[Wait]:
        """Open collectives of ranks that still run, whose thread has issued nothing for so long."""
        return [
            Wait(progress.rank, collective)
            for progress in self._ranks.values()
            if not progress.has_ended and not progress.lost
            for collective in progress.open.values()
            if self._elapsed(progress.went_on_after(collective), now_ns) >= least_ns
        ]

    def _elapsed(self, begun_ns: int, now_ns: int) -> int:
        """Without the time in which a rank was held for an image."""
        held_ns, upto_ns = 0, begun_ns
        spans = (span for progress in self._ranks.values() for span in progress.held if span[1] > begun_ns)
        for first_ns, last_ns in sorted(spans):  # of several ranks they may overlap
            held_ns += max(last_ns - max(first_ns, upto_ns), 0)
            upto_ns = max(upto_ns, last_ns)
        return now_ns - begun_ns - held_ns

    def _key(self, stall: Stall) -> _Key:
        """Not by who waits: a rank of a hang that is reported may end, and the others still wait."""
        return stall.group.ranks, self._attempts[stall.first.rank], stall.meeting
