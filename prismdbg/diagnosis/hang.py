"""Finds a hang while the job runs: a collective that does not complete within a bound, and who never issued it.

A rank that is parked for a capture, and whoever waits for it, does not hang: while any rank is parked nothing is
due, and after a release every wait counts from there.
"""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.capsule.log_reader import Event
from prismdbg.diagnosis.meeting import Meeting
from prismdbg.diagnosis.progress import Progress
from prismdbg.diagnosis.stalls import Stall, Wait, causes, find_stalls
from prismdbg.diagnosis.wording import and_list, place, rank_list
from prismdbg.model.moment import Moment

NS_PER_S = 1_000_000_000

_Key = tuple[tuple[int, ...], int, Meeting]  # members, attempt, meeting


@dataclass(frozen=True, slots=True, kw_only=True)
class HangReport:
    """`stall` is the cause; `behind` are ranks that wait elsewhere, in consequence."""

    stall: Stall
    waited_ns: int
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
        if any(progress.is_parked for progress in self._ranks.values()):
            return []
        begun_ns = max((progress.released_ns for progress in self._ranks.values()), default=0)
        # half the bound: whoever waits in consequence began later than the first
        stuck = self._waits_since(now_ns - self._bound_ns // 2, begun_ns)
        stalls = find_stalls(self._ranks, stuck)
        reports = []
        for stall in causes(stalls):
            waited_ns = now_ns - max(stall.first.collective.time_created_ns, begun_ns)
            if waited_ns < self._bound_ns or self._key(stall) in self._reported:
                continue
            behind = tuple(wait for other in stalls if other is not stall for wait in other.waits)
            reports.append(HangReport(stall=stall, waited_ns=waited_ns, behind=behind))
        if reports:
            self._reported |= {self._key(stall) for stall in stalls}
        return reports

    def _waits_since(self, latest_ns: int, begun_ns: int) -> list[Wait]:
        """Open collectives of ranks that still run, whose thread has issued nothing since `latest_ns`."""
        return [
            Wait(progress.rank, collective)
            for progress in self._ranks.values()
            if not progress.has_ended and not progress.lost
            for collective in progress.open.values()
            if max(progress.went_on_after(collective), begun_ns) <= latest_ns
        ]

    def _key(self, stall: Stall) -> _Key:
        """Not by who waits: a rank of a hang that is reported may end, and the others still wait."""
        return stall.group.ranks, self._attempts[stall.first.rank], stall.meeting
