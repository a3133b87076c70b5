"""Where a job stopped: the collective in which ranks wait, who never joined it, and what those did instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from prismdbg.capsule.manifest import IncidentKind
from prismdbg.capsule.stacks import RankStacks
from prismdbg.diagnosis.evidence import Evidence, parks
from prismdbg.diagnosis.failures import death_is_certain, first_dead, last_call
from prismdbg.diagnosis.hang import hang_ns
from prismdbg.diagnosis.meeting import in_different_calls, kinds_of_calls
from prismdbg.diagnosis.outlived import was_outlived
from prismdbg.diagnosis.progress import Progress
from prismdbg.diagnosis.stack_positions import stack_line, stack_position
from prismdbg.diagnosis.stalls import Stall, causes, find_stalls, waiting_for
from prismdbg.diagnosis.verdict import Call, Certainty, Verdict, without_folders
from prismdbg.diagnosis.waits import find_waits
from prismdbg.diagnosis.wording import and_list, exit_code, headline, how_it_died, rank_list
from prismdbg.model.collective import State
from prismdbg.model.durations import brief
from prismdbg.model.frame import source_of
from prismdbg.model.moment import Moment
from prismdbg.protocol.values import frame_to_json

# A wait this much longer than usual is no coincidence with the end of the job.
LONG_WAIT_NS = 1_000_000_000
LONG_WAIT_FACTOR = 10
_SOON_NS = 1_000_000_000  # what closes a rank's connections may come so long before what ended it is noted


class How(StrEnum):
    """Why a rank never joined."""

    RAISED = "raised"
    EXITED = "exited"
    DIED = "died"
    WAITS_ELSEWHERE = "waits elsewhere"
    ELSEWHERE = "elsewhere"


GONE = frozenset({How.RAISED, How.EXITED, How.DIED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    rank: int
    how: How
    did: str
    last: Call | None
    stacks: RankStacks | None = None
    missing: str = "never joined it"

    @property
    def text(self) -> str:
        last = f"its last call: {self.last.text}" if self.last is not None else "it issued no collective"
        return f"rank {self.rank} {self.missing}: {self.did}; {last}"

    @property
    def lines(self) -> tuple[str, ...]:
        callers = stack_line(self.stacks) if self.stacks is not None else ""
        return (self.text, f"rank {self.rank} was {callers}") if callers else (self.text,)

    def to_json(self) -> dict[str, Any]:
        last = self.last.to_json() if self.last is not None else None
        frames = [frame_to_json(frame) for frame in self.stacks.frames] if self.stacks is not None else None
        return {"rank": self.rank, "how": str(self.how), "did": self.did, "last": last, "stack": frames}


_ENDED_WHILE_WAITING = "the ranks may have waited here only because the job ended: the logs do not show a hang"
_MAY_RUN = "the job may still run, or may have ended during this wait: the logs do not show a hang"
_MAY_GO_ON = (
    "the job is running, and this wait is not long enough to be called a hang: a rank may be writing a training "
    "checkpoint"
)
_NOT_SO_FAR = "has not joined it so far"
_NOTHING_SENT = "has sent it no message"
_FAILED_AND_CAUGHT = "the call failed, and the program may have caught its error: the logs do not show a hang"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Verdict):
    """`behind`: ranks that wait elsewhere as a consequence. waited_ns: the longest wait; None: unknown. circle: where
    ranks wait for each other, all of their stalls, of which `stall` is the first. may_go_on: the job runs, and the
    wait is not long enough to be called a hang. may_run: it is unknown whether the job runs."""

    stall: Stall
    absent: tuple[Absent, ...]
    waited_ns: int | None
    behind: tuple[int, ...]
    circle: tuple[Stall, ...] = ()
    clocks_known: bool = True
    may_go_on: bool = False
    may_run: bool = False

    kind = "stopped"

    @property
    def moment(self) -> Moment:
        return self.stall.first.collective.moment

    @property
    def text(self) -> str:
        if self.circle:
            return f"{self._who()}{self._for_long}: {and_list([_waiting_in(stall) for stall in self.circle])}"
        stall, call = self.stall, self.stall.first.collective
        where = f"group {stall.group.title} {stall.key}, {call.moment}"
        kinds = kinds_of_calls({wait.rank: wait.collective for wait in stall.waits})
        if len(kinds) > 1:
            different = f"calls that do not match ({where}): {in_different_calls(kinds)}"
            return f"{self._waiting}{self._for_long} in {different}; {self._who()}"
        return f"{self._waiting} in {call.name} ({where}){self._for_long}; {self._who()}"

    @property
    def _waiting(self) -> str:
        verb = "failed" if self._failed else "waits" if len(self.stall.waits) == 1 else "wait"
        return f"{rank_list(self.stall.waiting_ranks)} {verb}"

    @property
    def _failed(self) -> bool:
        waits = (wait for stall in self.circle or (self.stall,) for wait in stall.waits)
        return all(wait.collective.state is State.FAILED for wait in waits)

    @property
    def _for_long(self) -> str:
        return (
            f" {'after' if self._failed and not self.circle else 'for'} {brief(self.waited_ns)}"
            if self.waited_ns is not None
            else ""
        )

    @property
    def brief(self) -> str:
        """Who never joined, and where the first of them is."""
        if self.circle:
            return self._who()
        stands = f": {without_folders(self.absent[0].did)}" if len(self.absent) == 1 else ""
        return f"{self._who()}{stands}"

    @property
    def aside(self) -> str:
        if self.circle:
            return self._for_long.strip()
        return f"{self._waiting} in {self.stall.first.collective.name}{self._for_long}"

    def _who(self) -> str:
        if self.circle:
            verb = "waited" if self._failed else "wait"
            return f"{rank_list({rank for stall in self.circle for rank in stall.waiting_ranks})} {verb} for each other"
        parts = []
        if self.absent:
            missing = self.absent[0].missing
            missing = missing.replace("has ", "have ", 1) if len(self.absent) > 1 else missing
            parts.append(f"{rank_list(absent.rank for absent in self.absent)} {missing}")
        if self.stall.unknown:
            parts.append(f"no data about {rank_list(self.stall.unknown)}")
        if not parts and not self.stall.key.members(self.stall.group):
            return "the log does not say who else is in the group"
        if not parts and self.clocks_known and (late := _late(self.stall)):
            return f"rank {late[0]} joined it {brief(late[1])} after the others"
        return and_list(parts) if parts else "every known rank of the group joined it"

    @property
    def lines(self) -> tuple[str, ...]:
        lines = [line for absent in self.absent for line in absent.lines] if not self.circle else []
        waits = (wait for stall in self.circle or (self.stall,) for wait in stall.waits)
        lines += [Call(rank=wait.rank, collective=wait.collective).text for wait in waits]
        if self.behind:
            verb = "waits" if len(self.behind) == 1 else "wait"
            lines.append(f"{rank_list(self.behind)} {verb} elsewhere as a consequence")
        if self.certainty is Certainty.HINT:
            lines.append(self._doubt)
        return tuple(lines)

    @property
    def _doubt(self) -> str:
        if self.may_go_on:
            return _MAY_GO_ON
        if self._failed:
            return _FAILED_AND_CAUGHT
        return _MAY_RUN if self.may_run else _ENDED_WHILE_WAITING

    def details(self) -> dict[str, Any]:
        return {
            "group": self.stall.group.name,
            "sequence": self.stall.key.seq,
            "waiting": [Call(rank=wait.rank, collective=wait.collective).to_json() for wait in self.stall.waits],
            "never_came": [absent.to_json() for absent in self.absent],
            "unknown": list(self.stall.unknown),
            "waited_ns": self.waited_ns,
            "circle": [{"group": each.group.name, "ranks": list(each.waiting_ranks)} for each in self.circle],
        }


def _waiting_in(stall: Stall) -> str:
    call = stall.first.collective
    return f"{rank_list(stall.waiting_ranks)} in {call.name} (group {stall.group.title} {stall.key}, {call.moment})"


def find_stops(evidence: Evidence) -> list[Verdict]:
    """The causes among all stalls; each group's first only, for a rank that does not come stays away."""
    ranks = evidence.progress()
    if evidence.is_running is not False and any(progress.is_parked for progress in ranks.values()):
        return []  # a capture or a checkpoint holds a rank, and those that wait for it do not hang
    stalls = _first_of_each(find_stalls(ranks, find_waits(evidence, ranks)))
    known = _Known(evidence=evidence, ranks=ranks, stalls=stalls, dead=first_dead(evidence))
    found = [_verdict(known, circle) for circle in _first_causes(causes(stalls))]
    return [verdict for verdict in found if verdict is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is worked out once for all stalls."""

    evidence: Evidence
    ranks: Mapping[int, Progress]
    stalls: list[Stall]
    dead: int | None
    waits_in: dict[int, list[Stall]] = field(default_factory=dict)  # by rank

    def __post_init__(self) -> None:
        for stall in self.stalls:
            for wait in stall.waits:
                if wait.is_sure:
                    self.waits_in.setdefault(wait.rank, []).append(stall)

    def elsewhere(self, rank: int, stall: Stall) -> Stall | None:
        return next((other for other in self.waits_in.get(rank, ()) if other is not stall), None)


def _first_of_each(stalls: list[Stall]) -> list[Stall]:
    """Of messages the first of each rank that waits: it may be what another one waits for."""
    firsts: dict[tuple[object, ...], Stall] = {}
    for stall in stalls:
        firsts.setdefault((*_absence(stall), stall.waiting_ranks if stall.key.is_p2p else ()), stall)
    return list(firsts.values())


def _first_causes(found: list[tuple[Stall, ...]]) -> list[tuple[Stall, ...]]:
    """One for the same ranks that do not come."""
    firsts: dict[tuple[object, ...], tuple[Stall, ...]] = {}
    for circle in found:
        firsts.setdefault(tuple(map(_absence, circle)), circle)
    return list(firsts.values())


def _absence(stall: Stall) -> tuple[object, ...]:
    return stall.group.name, stall.key.is_p2p, stall.never_came, stall.unknown


def _verdict(known: _Known, circle: tuple[Stall, ...]) -> Stopped | None:
    """circle: one stall, or several whose ranks wait for each other."""
    evidence, stall = known.evidence, circle[0]
    in_circle = {rank for each in circle for rank in each.waiting_ranks}
    absent = tuple(_absent(known, rank, stall) for rank in stall.never_came)
    waited_ns = _waited_ns(evidence, stall)
    certainty = _certainty(evidence, stall, absent, waited_ns)
    if certainty is Certainty.HINT and (evidence.is_running or evidence.interrupted):
        return None
    may_go_on = _may_go_on(evidence, stall, absent, waited_ns or 0)
    if stall.is_from_any:
        absent = tuple(replace(who, missing=_NOTHING_SENT) for who in absent)
    elif may_go_on:
        absent = tuple(replace(who, missing=_NOT_SO_FAR) for who in absent)
    if may_go_on:
        certainty = Certainty.HINT
    behind = {rank for other in waiting_for(known.stalls, circle) for rank in other.waiting_ranks}
    first = stall.first
    return Stopped(
        certainty=certainty,
        began_wall_ns=max(
            evidence.wall_ns(first.rank, first.collective.time_created_ns),
            *(_ended_wall_ns(evidence, rank) for rank in stall.never_came),  # the cause is said first
            0,
        ),
        ranks=tuple(dict.fromkeys((*stall.never_came, *_last_first(stall), *sorted(in_circle)))),
        stall=stall,
        absent=absent,
        waited_ns=waited_ns,
        behind=tuple(sorted(behind - {*in_circle, *stall.never_came})),
        circle=circle if len(circle) > 1 else (),
        may_go_on=may_go_on,
        may_run=evidence.is_running is None,
        clocks_known=not evidence.unknown_clocks.intersection(
            evidence.nodes.get(wait.rank, "") for wait in stall.waits
        ),
    )


def _may_go_on(evidence: Evidence, stall: Stall, absent: tuple[Absent, ...], waited_ns: int) -> bool:
    """Of a job that runs: whether the wait may just as well be a pause. Not where `record` called it a hang."""
    is_pause = bool(evidence.is_running) and not any(_was_gone(evidence, stall, who) for who in absent)
    moment = stall.first.collective.moment
    known = (seen for seen in evidence.incidents if seen.attempt == evidence.attempt)
    was_told = any(one.incident.kind is IncidentKind.HANG and one.incident.moment == moment for one in known)
    return is_pause and not was_told and waited_ns < hang_ns(evidence.columns.values())


def _last_first(stall: Stall) -> list[int]:
    """The ranks that wait; where all came and one did long after the others, it is the cause."""
    ranks = list(stall.waiting_ranks)
    late = _late(stall) if not stall.never_came and not stall.unknown else None
    return ranks if late is None else [late[0], *ranks]


def _late(stall: Stall) -> tuple[int, int] | None:
    """The rank that came last, if it did so long after the others, and how long after."""
    begun = sorted((wait.begun_ns, wait.rank) for wait in stall.waits)
    if len(begun) < 2 or begun[-1][0] - begun[-2][0] < LONG_WAIT_NS:
        return None
    return begun[-1][1], begun[-1][0] - begun[-2][0]


def _certainty(evidence: Evidence, stall: Stall, absent: tuple[Absent, ...], waited_ns: int | None) -> Certainty:
    if not stall.is_from_any and any(_was_gone(evidence, stall, who) for who in absent):
        return Certainty.CERTAIN
    if waited_ns is None:
        return Certainty.LIKELY if absent else Certainty.HINT
    usual_ns, longest_ns = _earlier_waits_ns(evidence, stall)
    if _undisturbed_ns(evidence, stall, waited_ns) < max(LONG_WAIT_NS, LONG_WAIT_FACTOR * usual_ns, longest_ns):
        return Certainty.HINT
    return Certainty.CERTAIN if absent and stall.is_sure and not stall.is_from_any else Certainty.LIKELY


def _was_gone(evidence: Evidence, stall: Stall, who: Absent) -> bool:
    """For certain, and before the others gave up: one of which that is not known may have ended after them."""
    if who.how is How.DIED:
        return death_is_certain(evidence, who.rank)
    return who.how in GONE and not _ended_later(evidence, stall, who.rank)


def _ended_later(evidence: Evidence, stall: Stall, rank: int) -> bool:
    """Whether all who waited had failed by then."""
    calls = [(wait, wait.collective.time_completed_ns) for wait in stall.waits if wait.collective.state is State.FAILED]
    failed_ns = [evidence.wall_ns(wait.rank, ended_ns) for wait, ended_ns in calls if ended_ns is not None]
    if len(failed_ns) < len(stall.waits):
        return False
    return _ended_wall_ns(evidence, rank) > max(failed_ns) + _SOON_NS


def _waited_ns(evidence: Evidence, stall: Stall) -> int | None:
    first = stall.first
    if first.collective.duration_ns is not None:
        return first.collective.duration_ns
    if not evidence.ended_wall_ns or evidence.nodes.get(first.rank, "") in evidence.unknown_clocks:
        return None
    until_ns = min([evidence.ended_wall_ns, *_ends_ns(evidence, first.rank)])
    return max(until_ns - evidence.wall_ns(first.rank, first.collective.time_created_ns), 0)


def _undisturbed_ns(evidence: Evidence, stall: Stall, waited_ns: int) -> int:
    """How much of the wait was over when the first member ended: launchers end the others then, and what they do not
    join any more says nothing. Without the time in which a member was held for an image."""
    began_ns = evidence.wall_ns(stall.first.rank, stall.first.collective.time_created_ns)
    members = stall.key.members(stall.group)
    ends = (end for rank in members for end in _ends_ns(evidence, rank))
    until_ns = began_ns + min([waited_ns, *(end - began_ns for end in ends if end >= began_ns)])
    held_ns = sum(_held_ns(evidence, rank, began_ns, until_ns) for rank in members if rank in evidence.logs)
    return until_ns - began_ns - held_ns


def _held_ns(evidence: Evidence, rank: int, began_ns: int, until_ns: int) -> int:
    """How long the rank was held for images between the two, by the wall clock."""
    held = 0
    for since_ns, released_ns in parks(evidence.columns[rank]):
        end_ns = until_ns if released_ns is None else min(evidence.wall_ns(rank, released_ns), until_ns)
        held += max(end_ns - max(evidence.wall_ns(rank, since_ns), began_ns), 0)
    return held


def _ends_ns(evidence: Evidence, rank: int) -> list[int]:
    """When it raised, said its exit code or was seen to be gone, as far as that is known by the clock of the others."""
    if evidence.nodes.get(rank, "") in evidence.unknown_clocks:
        return []
    said_ns = _ended_wall_ns(evidence, rank) if rank in evidence.logs else 0
    return [end for end in (said_ns, evidence.gone_wall_ns.get(rank, 0)) if end]


def _earlier_waits_ns(evidence: Evidence, stall: Stall) -> tuple[int, int]:
    """On the rank that waits first: the median of its times in the group, and how long it waited twice at the same
    line, as where the others wait each time until one has written a checkpoint."""
    log, call = evidence.columns[stall.first.rank], stall.first.collective
    of_group = np.isin(log.group, [number for number, text in log.texts.items() if text == stall.key.group])
    rows = of_group & (log.ended_ns > log.begun_ns) & ~log.failed
    if not rows.any():
        return 0, 0
    taken_ns = (log.ended_ns - log.begun_ns)[rows]
    stacks = np.unique(log.stack[rows]).tolist() if call.source is not None else []
    same_line = np.isin(log.stack[rows], [stack for stack in stacks if source_of(log.frames(stack)) == call.source])
    longest = np.sort(taken_ns[same_line])[-2:]
    return round(float(np.median(taken_ns))), int(longest[0]) if len(longest) == 2 else 0


def _absent(known: _Known, rank: int, stall: Stall) -> Absent:
    evidence = known.evidence
    how, did = _instead(known, known.ranks[rank], stall)
    stacks = _stacks_since(evidence, rank, stall) if how is How.ELSEWHERE else None
    if stacks is not None and (where := stack_position(stacks)):
        did = f"it is at {where}"
    elif stacks is not None and stacks.problem:
        did = f"{did}; its position is unknown: {stacks.problem}"
    return Absent(rank=rank, how=how, did=did, last=last_call(evidence.logs[rank]), stacks=stacks)


def _stacks_since(evidence: Evidence, rank: int, stall: Stall) -> RankStacks | None:
    """Where they were taken while the others waited, and the rank has issued nothing since."""
    began = evidence.wall_ns(stall.first.rank, stall.first.collective.time_created_ns)
    last = last_call(evidence.logs[rank])
    went_on = last is not None and evidence.wall_ns(rank, last.collective.time_created_ns) > evidence.stacks_wall_ns
    return evidence.stacks.get(rank) if evidence.stacks_wall_ns > began and not went_on else None


def _instead(known: _Known, progress: Progress, stall: Stall) -> tuple[How, str]:
    evidence = known.evidence
    if progress.incident is not None:
        data = progress.incident.data
        raised = f"it raised {data.get('type', 'an exception')}: {headline(str(data.get('text', '')))}"
        return How.RAISED, f"{raised}{_after_that(evidence, stall, progress.rank)}"
    if progress.exit_code is not None:
        after = _after_that(evidence, stall, progress.rank)
        return How.EXITED, f"it exited with {exit_code(progress.exit_code)}{after}"
    if (other := known.elsewhere(progress.rank, stall)) is not None:
        call = other.first.collective
        return How.WAITS_ELSEWHERE, f"it waits in {call.name} (group {other.group.title} {other.key})"
    if progress.rank in evidence.exit_codes:
        return How.EXITED, f"it ended with exit code {evidence.exit_codes[progress.rank]}"
    if progress.rank == known.dead:
        return How.DIED, f"it {how_it_died(evidence.signals.get(progress.rank), None)}"
    return How.ELSEWHERE, "its log shows no error"


def _after_that(evidence: Evidence, stall: Stall, rank: int) -> str:
    return ", after the others had failed" if _ended_later(evidence, stall, rank) else ""


def _ended_wall_ns(evidence: Evidence, rank: int) -> int:
    """When it raised, or said its exit code; 0 where it said neither."""
    log = evidence.columns[rank]
    said = (n for n in log.notes if n.kind in ("incident", "exit") and not n.data.get("thread"))
    ended = next((note for note in said if not was_outlived(log, note)), None)
    return evidence.wall_ns(rank, ended.time_ns) if ended is not None else 0
