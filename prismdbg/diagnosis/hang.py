"""Finds a hang while the job runs: a collective that does not complete within a bound, and who never issued it.

A rank that is parked for a capture, and whoever waits for it, does not hang: while any rank is parked nothing is
due, and that time counts for no wait. Of ranks of other nodes that is known once their supervisors were asked.

How long a wait must be is compared with the job's own past: a bound of 60 s says nothing of a job whose steps take two
minutes, or of a machine that has too much to do. Until then it is slow, not hung.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise

from prismdbg.capsule.log.batch import GAPS_KEPT, Batch, Gap
from prismdbg.capsule.log.events import Event, StepMark
from prismdbg.capsule.stacks import HangPlace
from prismdbg.diagnosis.collective_key import CollectiveKey, collective_key
from prismdbg.diagnosis.meeting import in_different_calls, kinds_of_calls
from prismdbg.diagnosis.progress import Progress
from prismdbg.diagnosis.stalls import Stall, Wait, causes, find_stalls
from prismdbg.diagnosis.wording import and_list, place, rank_list
from prismdbg.log.columns import LogColumns
from prismdbg.model.collective import Collective
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted

NS_PER_S = 1_000_000_000
LONGER_THAN_BEFORE = 3  # times the longest of the last intervals
BUSY_FACTOR = 5  # times the bound, while who never came computes or waits for a CPU
MOST_FACTOR = 10  # times the bound: whatever the past was, then it is a hang
STEPS_REMEMBERED = 32  # of each rank
FIRST_COLLECTIVES = 32  # the start of a job that marks no steps
GAPS_REMEMBERED = GAPS_KEPT  # between two collectives of one thread, of each rank
_USUAL_BOUND_NS = 60 * NS_PER_S
MOST_OTHERS = 4  # of the causes that stand at the same time, in a report


def hang_ns(logs: Collection[LogColumns]) -> int:
    """How long a wait must be while the job runs, as `record` decides it where nothing else is asked for."""
    steps = [[mark.time_ns for mark in log.steps[-STEPS_REMEMBERED - 1 :]] for log in logs]
    calls = [log.begun_ns[-GAPS_REMEMBERED - 1 :].tolist() for log in logs]
    longest_ns = max((b - a for times in (*steps, *calls) for a, b in pairwise(times)), default=0)
    return min(max(_USUAL_BOUND_NS, LONGER_THAN_BEFORE * longest_ns), MOST_FACTOR * _USUAL_BOUND_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """A hang that was reported. lasts: the last call of each rank that waited in it or never came, at that time."""

    attempt: int
    waits: tuple[Wait, ...]
    lasts: Mapping[int, Collective | None]


_Key = tuple[tuple[int, ...], int, CollectiveKey]  # members, attempt, key


@dataclass(frozen=True, slots=True, kw_only=True)
class HangReport:
    """`stall` is the cause. circle: where ranks wait for each other, all of their stalls. others: causes that became
    due at the same time. calls: of the members that have joined the stall and not completed it. left: members that no
    longer wait in it. lasts: the last call of each rank that never came or left."""

    stall: Stall
    waited_ns: int
    calls: Mapping[int, Collective] = field(default_factory=dict)
    left: tuple[int, ...] = ()
    lasts: Mapping[int, Collective] = field(default_factory=dict)
    circle: tuple[Stall, ...] = ()
    others: tuple[HangReport, ...] = ()

    @property
    def moment(self) -> Moment:
        """Of the rank that waits longest."""
        return self.stall.first.collective.moment

    @property
    def ranks(self) -> tuple[int, ...]:
        """Worth a capsule: the rank that waits longest, those that never came, and one in each call that differs."""
        first = self.stall.first.rank
        odd = [min(kind) for kind in self._kinds if first not in kind]
        return tuple(dict.fromkeys((first, *odd, *self.never_came)))

    @property
    def never_came(self) -> tuple[int, ...]:
        """Into this stall, or into others that stand at the same time and are told."""
        stalls = (*self.stalls, *(stall for other in self.others[:MOST_OTHERS] for stall in other.stalls))
        return tuple(dict.fromkeys(rank for stall in stalls for rank in stall.never_came))

    @property
    def stalls(self) -> tuple[Stall, ...]:
        """That of the cause; all of a circle."""
        return self.circle or (self.stall,)

    @property
    def _kinds(self) -> list[dict[int, Collective]]:
        return kinds_of_calls(self.calls)

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
        shown = [self._text(), *(other._text() for other in self.others[:MOST_OTHERS])]
        more = len(self.others) - MOST_OTHERS
        return "; at the same time ".join([*shown, *([f"{counted(more, 'more call')} hung"] if more > 0 else [])])

    def _text(self) -> str:
        stall, call, waited = self.stall, self.stall.first.collective, f"{self.waited_ns / NS_PER_S:.0f} s"
        if self.circle:
            ranks = {rank for each in self.circle for rank in each.waiting_ranks}
            return f"{rank_list(ranks)} waited {waited} for each other: {and_list([_where(s) for s in self.circle])}"
        where = f"group {stall.group.title} {stall.key}, {call.moment}"
        if len(self._kinds) > 1:
            different = f"in calls that do not match ({where}): {in_different_calls(self._kinds)}"
            text = f"{rank_list(self.calls)} waited {waited} {different}"
            return f"{text}; {self._absent()}" if stall.never_came or stall.unknown or self.left else text
        return (
            f"{rank_list(stall.waiting_ranks)} waited {waited} in {call.name} ({where}){place(call)}; {self._absent()}"
        )

    def _absent(self) -> str:
        stall = self.stall
        parts = [f"{_title(rank, self.lasts.get(rank))} no longer waits in it" for rank in self.left]
        if self.left and not stall.never_came and not stall.unknown:
            return f"every known rank of the group joined it; {and_list(parts)}"
        if stall.never_came:
            parts.append(f"{rank_list(stall.never_came)} never joined it")
        if stall.unknown:
            parts.append(f"no data about {rank_list(stall.unknown)}")
        return and_list(parts) if parts else "every known rank of the group joined it"


def _where(stall: Stall) -> str:
    """`rank 1 in recv (group world 2 to 1 tag 0 #3, 5.1) at a.py:5 in f`."""
    call = stall.first.collective
    where = f"group {stall.group.title} {stall.key}, {call.moment}"
    return f"{rank_list(stall.waiting_ranks)} in {call.name} ({where}){place(call)}"


def _title(rank: int, last: Collective | None) -> str:
    return f"rank {rank}" if last is None else f"rank {rank} (last call: {last.name}, {last.moment}{place(last)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """Ranks whose processes did something while the others waited. computing: they had a processor for most of the
    time; in_line: they were runnable for most of it, with a processor or without. elsewhere: ranks of other nodes that
    hold others up, as the supervisors of these nodes say."""

    computing: frozenset[int] = frozenset()
    in_line: frozenset[int] = frozenset()
    elsewhere: frozenset[int] = frozenset()

    def holds_up(self, stall: Stall) -> bool:
        """Whoever waits may spin on its device; that says nothing. Only where all came does it count who got no
        processor to go on."""
        if not self.elsewhere.isdisjoint(stall.unknown):
            return True
        if stall.never_came:
            return bool((self.computing | self.in_line) & set(stall.never_came))
        return bool((self.in_line - self.computing) & set(stall.waiting_ranks))


IDLE = Busy()


@dataclass(slots=True)
class Pace:
    """How long the last steps of each rank took, and the last times from one collective of a thread to its next. What
    comes before the first step is a start, with its imports and compilers, and says nothing of the rest."""

    _steps: dict[int, deque[int]] = field(default_factory=dict)
    _gaps: dict[int, deque[int]] = field(default_factory=dict)
    _began: dict[int, int] = field(default_factory=dict)

    def begin_step(self, rank: int, time_ns: int, elapsed_ns: Callable[[int, int], int]) -> None:
        if rank in self._began:
            steps = self._steps.setdefault(rank, deque(maxlen=STEPS_REMEMBERED))
            steps.append(elapsed_ns(self._began[rank], time_ns))
        self._began[rank] = time_ns

    def go_on(self, rank: int, gaps: Iterable[Gap], elapsed_ns: Callable[[int, int], int]) -> None:
        counts_from = 0 if rank in self._began else FIRST_COLLECTIVES
        new = [elapsed_ns(begun, ended) for begun, ended, record_id in gaps if record_id >= counts_from]
        if new:
            self._gaps.setdefault(rank, deque(maxlen=GAPS_REMEMBERED)).extend(new)

    def restart(self, rank: int) -> None:
        for known in (self._steps, self._gaps, self._began):
            known.pop(rank, None)

    @property
    def longest_ns(self) -> int:
        return max((max(times) for known in (self._steps, self._gaps) for times in known.values()), default=0)


def _difference(begun_ns: int, ended_ns: int) -> int:
    return ended_ns - begun_ns


class HangDetector:
    """`feed` with every event of every rank, then ask what is `due`. Each hang is reported once: who waits for a rank
    that hangs in it, also from later on, is part of it while that rank issues nothing."""

    def __init__(self, bound_ns: int) -> None:
        self._bound_ns = bound_ns
        self._ranks: dict[int, Progress] = {}
        self._attempts: dict[int, int] = {}
        self._reported: set[_Key] = set()
        self._told: list[_Told] = []
        self._said_slow: set[_Key] = set()
        self._pace = Pace()
        self._held_elsewhere: list[tuple[int, int]] = []

    def hold_elsewhere(self, spans: Iterable[tuple[int, int]]) -> None:
        """From when to when ranks of other nodes were held for an image, as far as it was heard of lately."""
        self._held_elsewhere = list(spans)

    def held(self, now_ns: int) -> list[tuple[int, int]]:
        """The same of the ranks that are known here, and up to now of those that still are."""
        known = self._ranks.values()
        still = [(one.parked_ns, now_ns) for one in known if one.is_parked and one.parked_ns is not None]
        return sorted([*(span for one in known for span in one.held), *still])

    def awaits_unknown(self, now_ns: int) -> bool:
        """Whether somebody has waited for the bound in a collective of which not all members are known here."""
        return any(
            stall.unknown and self._elapsed(stall.first.collective.time_created_ns, now_ns) >= self._bound_ns
            for stall in self._stalls(now_ns)
        )

    def is_anyone_quiet(self, now_ns: int) -> bool:
        """Whether a rank has issued nothing for half the bound: others may wait for it where nobody here does."""
        return any(self._elapsed(rank.issued_ns, now_ns) >= self._bound_ns // 2 for rank in self._followed())

    def holding_up(self, busy: Busy, now_ns: int) -> frozenset[int]:
        """Ranks for which others should wait longer: they compute or wait for a CPU, and do not wait for others
        themselves; or they wait, and get no processor."""
        waiting = {wait.rank for wait in self._waits_of(self._bound_ns // 2, now_ns)}
        starved = busy.in_line - busy.computing
        found = ((busy.computing | busy.in_line) - waiting) | (starved & waiting)
        return found & frozenset(rank.rank for rank in self._followed())

    def _followed(self) -> list[Progress]:
        """Of ranks that still run, and are recorded."""
        return [rank for rank in self._ranks.values() if not rank.has_ended and not rank.lost]

    def feed(self, rank: int, event: Event, attempt: int = 0) -> None:
        """`attempt` counts the restarts of a rank: what the one before waited in no longer matters."""
        known = self._attempts.get(rank, -1)
        if attempt < known:
            return
        if attempt > known:
            self._attempts[rank] = attempt
            self._ranks[rank] = Progress(rank)
            self._pace.restart(rank)
        progress = self._ranks[rank]
        if isinstance(event, StepMark):
            self._pace.begin_step(rank, event.time_ns, self._elapsed)
        elif isinstance(event, Batch):
            was_held = any(progress.held for progress in self._ranks.values())
            self._pace.go_on(rank, event.gaps, self._elapsed if was_held else _difference)
        progress.feed(event)

    def died(self, rank: int, attempt: int = 0) -> None:
        """The process is gone: it waits no more, and what it has not issued it never will."""
        if self._attempts.get(rank) == attempt:
            self._ranks[rank].has_died = True

    def due(self, now_ns: int, busy: Busy = IDLE) -> list[HangReport]:
        """Hangs whose longest wait has reached what is needed, causes only; several of an attempt are one report.
        `now_ns` is CLOCK_MONOTONIC."""
        stalls = self._stalls(now_ns)
        found: dict[int, list[HangReport]] = {}  # by attempt
        for report in self._untold(stalls, now_ns):
            if report.waited_ns >= self._needed_ns(report.stall, busy):
                found.setdefault(self._attempt(report.stall), []).append(report)
        for attempt, reports in found.items():
            self._tell(attempt, reports)
        return [replace(first, others=tuple(others)) for first, *others in found.values()]

    def _untold(self, stalls: list[Stall], now_ns: int) -> list[HangReport]:
        """But for those of which a report told, and those that wait for ranks that hang there still."""
        self._told = [one for one in self._told if self._hang_in(one)]
        hanging: dict[int, set[int]] = {}  # by attempt, ranks
        for one in self._told:
            hanging.setdefault(one.attempt, set()).update(self._hang_in(one))
        return [
            self._report(circle, now_ns)
            for circle in causes(stalls)
            if not self._reported & {self._key(stall) for stall in circle}
            and not self._waits_for(circle[0], hanging.get(self._attempt(circle[0]), set()))
        ]

    @staticmethod
    def _waits_for(stall: Stall, hanging: set[int]) -> bool:
        """And for nobody else."""
        return bool(stall.never_came) and hanging.issuperset(stall.never_came)

    def _tell(self, attempt: int, reports: list[HangReport]) -> None:
        for report in reports:
            ranks = {rank for stall in report.stalls for rank in (*stall.waiting_ranks, *stall.never_came)}
            self._reported |= {self._key(stall) for stall in report.stalls}
            self._told.append(
                _Told(
                    attempt=attempt,
                    waits=tuple(wait for stall in report.stalls for wait in stall.waits),
                    lasts={rank: self._ranks[rank].last for rank in ranks},
                )
            )

    def _hang_in(self, one: _Told) -> set[int]:
        """Of its ranks those that have issued nothing since, while one of them still waits in it. Whoever ended in it
        still counts."""
        still = {rank for rank, last in one.lasts.items() if self._has_stayed(one.attempt, rank, last)}
        waiting = {wait.rank for wait in one.waits if self._ranks[wait.rank].is_open(wait.collective)}
        missing = one.lasts.keys() - {wait.rank for wait in one.waits}
        return still & (waiting | missing) if still & waiting else set()

    def _has_stayed(self, attempt: int, rank: int, last: Collective | None) -> bool:
        known = self._ranks[rank].last
        is_same = known is last or (known is not None and last is not None and known.record_id == last.record_id)
        return self._attempts[rank] == attempt and is_same

    def slow(self, now_ns: int, busy: Busy = IDLE) -> list[HangReport]:
        """Waits that have reached the bound and are no hang yet; each is given once."""
        found = [
            report
            for report in self._untold(self._stalls(now_ns), now_ns)
            if self._bound_ns <= report.waited_ns < self._needed_ns(report.stall, busy)
            and self._key(report.stall) not in self._said_slow
        ]
        self._said_slow |= {self._key(report.stall) for report in found}
        return found

    def _report(self, circle: tuple[Stall, ...], now_ns: int) -> HangReport:
        stall = circle[0]
        joined = self._joined(stall)
        gone = {*joined, *stall.never_came, *stall.unknown}
        left = tuple(rank for rank in stall.key.members(stall.group) if rank not in gone)
        lasts = {rank: self._ranks[rank].last for rank in (*stall.never_came, *left)}
        return HangReport(
            stall=stall,
            waited_ns=self._elapsed(stall.first.collective.time_created_ns, now_ns),
            calls=joined,
            left=left,
            lasts={rank: last for rank, last in lasts.items() if last is not None},
            circle=circle if len(circle) > 1 else (),
        )

    def _joined(self, stall: Stall) -> dict[int, Collective]:
        """By rank the call of those that have joined it and not completed it, however long ago."""
        found = {wait.rank: wait.collective for wait in stall.waits}
        for rank in stall.key.members(stall.group):
            progress = self._ranks.get(rank)
            if rank in found or progress is None:
                continue
            for call in progress.open.values():
                if collective_key(call, rank, progress.group(call.group)) == stall.key:
                    found[rank] = call
        return found

    def _needed_ns(self, stall: Stall, busy: Busy) -> int:
        """How long a wait must be to be called a hang."""
        needed = max(self._bound_ns, LONGER_THAN_BEFORE * self._pace.longest_ns)
        if busy.holds_up(stall):
            needed = max(needed, BUSY_FACTOR * self._bound_ns)
        return min(needed, MOST_FACTOR * self._bound_ns)

    def has_gone_on(self, report: HangReport) -> bool:
        """Whether nobody waits in that collective any more, as far as the events say: it completed, or the job was
        restarted. Whoever ended in it still counts."""
        return not any(self._ranks[wait.rank].is_open(wait.collective) for wait in report.stall.waits)

    def suspects(self, now_ns: int) -> bool:
        """Whether somebody has waited for half the bound, and who never came is not parked."""
        return bool(self._stalls(now_ns))

    def _stalls(self, now_ns: int) -> list[Stall]:
        """Half the bound: whoever waits in consequence began later than the first."""
        if any(progress.is_parked for progress in self._ranks.values()):
            return []
        return find_stalls(self._ranks, self._waits_of(self._bound_ns // 2, now_ns), from_any=False)

    def _waits_of(self, least_ns: int, now_ns: int) -> list[Wait]:
        """Open collectives of ranks that still run, whose thread has issued nothing for so long."""
        return [
            Wait(progress.rank, collective)
            for progress in self._followed()
            for collective in progress.open.values()
            if not progress.does_without(collective)
            and self._elapsed(progress.went_on_after(collective), now_ns) >= least_ns
        ]

    def _elapsed(self, begun_ns: int, now_ns: int) -> int:
        """Without the time in which a rank was held for an image."""
        held_ns, upto_ns = 0, begun_ns
        known = chain(self._held_elsewhere, *(progress.held for progress in self._ranks.values()))
        for first_ns, last_ns in sorted(
            span for span in known if span[1] > begun_ns
        ):  # of several ranks they may overlap
            held_ns += max(last_ns - max(first_ns, upto_ns), 0)
            upto_ns = max(upto_ns, last_ns)
        return now_ns - begun_ns - held_ns

    def _key(self, stall: Stall) -> _Key:
        """Not by who waits: a rank of a hang that is reported may end, and the others still wait."""
        return stall.group.ranks, self._attempt(stall), stall.key

    def _attempt(self, stall: Stall) -> int:
        return self._attempts[stall.first.rank]
