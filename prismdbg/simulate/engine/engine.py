"""Advances whole cohorts: a clock for each stream, shaped by the mesh, of size 1 along the axes where all are alike.

It knows no processes and no wall clock. What may not go on yet waits until what it waits for is known; the order in
which streams are looked at changes nothing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from prismdbg.model.meanwhile import working
from prismdbg.simulate.engine.prepared_cohort import Amount, Call, PreparedCohort
from prismdbg.simulate.engine.program import Step
from prismdbg.simulate.engine.rendezvous import Arrival, Ending, Rendezvous
from prismdbg.simulate.graph.entries import COMPUTE_STREAM, FREE, Kind
from prismdbg.simulate.graph.mesh import Ints

RUN, HERE, QUEUED, LAUNCH, POST, JOIN, MARK = (int(step) for step in Step)  # plain numbers: the loop is hot
OTHER_STREAMS = -1  # in the place of a channel
_TOLD_EACH = 1024  # turns of tracks
_OWN = 1 << 40  # added to an entry: its own track waits for it


class Keep(Enum):
    """Whose ends of communication are kept, for timelines."""

    ALL = "all"
    FIRST = "first"  # one rank of each cohort: the first, or the one that was asked for
    NONE = "none"


@dataclass(frozen=True, slots=True, eq=False)
class LastMember:
    """Who of a group came last, the first of equals: row-major over `sizes` along the group's axes, 1 if all alike."""

    number: NDArray[np.int32]  # shaped like the group's end
    sizes: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Track:
    """One stream of one crew. `is_there`: what it waits for has been told that it arrived."""

    team: Team
    stream: int
    steps: list[int]
    numbers: list[int]
    clock: Ints
    at: int = 0
    is_there: bool = False

    @property
    def is_done(self) -> bool:
        return self.at == len(self.steps)


@dataclass(slots=True, eq=False)
class Team:
    """A crew under way. ends, posts: of entries that another stream will still ask for; results: for the own one.
    waiting: who asks for something not yet known.

    shown_ns, late_ns: of the compute stream, by place of the channel: transfer it had to wait for, others it waited
    for. derived: the place whose lateness follows from all else, because to add it up would take longest.
    """

    crew: PreparedCohort
    derived: int | None
    kept: dict[int, Amount] | None
    kept_place: tuple[int, ...] = ()  # of the rank that is kept, where it is not the first
    tracks: list[Track] = field(default_factory=list)
    ends: dict[int, Ints] = field(default_factory=dict)
    results: dict[int, Ints] = field(default_factory=dict)
    posts: dict[int, Ints] = field(default_factory=dict)
    joins: list[int] = field(default_factory=list)
    waiting: dict[int, list[Track]] = field(default_factory=lambda: defaultdict(list))
    shown_ns: dict[int, Amount] = field(default_factory=lambda: defaultdict(int))
    late_ns: dict[int, Amount] = field(default_factory=lambda: defaultdict(int))
    launched_end: Ints | None = None
    last_member: dict[int, LastMember] | None = None  # by entry, where members differ
    launched_ends: dict[int, Ints] | None = None  # by entry, for the critical path
    other_won: dict[tuple[int, int], NDArray[np.bool_]] | None = (
        None  # (stream, place) -> whether what it waited for came later
    )


class Engine:
    """`stuck` after `run`: the tracks that never end."""

    def __init__(self, teams: list[Team], *, keep: Keep, trace: bool) -> None:
        self.teams = teams
        self.meetings = Rendezvous(last={} if trace else None)
        self._team_of = {id(team.crew): team for team in teams}
        self._keep = keep
        self._ready: deque[Track] = deque(track for team in teams for track in team.tracks)

    def run(self) -> list[Track]:
        tracks = [track for team in self.teams for track in team.tracks]
        steps, turn = sum(len(track.steps) for track in tracks), 0
        with working() as tell:
            while self._ready:
                self._advance(self._ready.popleft())
                turn += 1
                if not turn % _TOLD_EACH:
                    tell(f"simulating: step {sum(track.at for track in tracks):,} of {steps:,}")
        return [track for track in tracks if not track.is_done]

    def _advance(self, track: Track) -> None:
        team, clock, at = track.team, track.clock, track.at
        crew, steps, numbers = team.crew, track.steps, track.numbers
        run_ns, calls, call_of = crew.run_ns, crew.calls, crew.plan.call_of
        is_main, count = track.stream == COMPUTE_STREAM, len(steps)
        while at < count:
            step, number = steps[at], numbers[at]
            if step == RUN:
                taken = run_ns[number]
                clock = clock + (crew.slow_ns(number) if taken is None else taken)
            elif step == HERE and calls[call_of[number]].alone:
                call = calls[call_of[number]]
                last = self._last(team, number, call, clock)
                if is_main and call.place != team.derived and last is not clock:
                    team.late_ns[call.place] = team.late_ns[call.place] + (last - clock)
                clock = last + call.transfer_ns
                if team.kept is not None:
                    team.kept[number] = self._kept(team, clock)
            else:
                track.at = at
                following = self._other(track, step, number, clock)
                if following is None:
                    break
                clock = following
                track.is_there = False
            at += 1
        track.clock, track.at = clock, at

    def _last(self, team: Team, entry: int, call: Call, arrived: Ints) -> Ints:
        """The latest of each group, all of which is in this cohort; the same object where all are alike."""
        axis = call.axis
        if isinstance(axis, int):
            if arrived.shape[axis] == 1:
                return arrived
        elif all(arrived.shape[each] == 1 for each in axis):
            return arrived
        if team.last_member is not None:
            team.last_member[entry] = last_member(arrived, call.seam.axes)
        last: Ints = np.maximum.reduce(arrived, axis=axis, keepdims=True)
        return last

    def _other(self, track: Track, step: int, entry: int, clock: Ints) -> Ints | None:
        """The clock after it, None where it has to wait."""
        team = track.team
        if step == MARK:
            self._publish(team, entry, clock)
        elif step == POST:
            team.posts[entry] = clock
            self._wake(team, ~entry)
        elif step == LAUNCH:
            self._arrive(team, entry, clock)
        elif step == QUEUED:
            return self._queued(track, entry, clock)
        elif step == HERE:
            return self._here(track, entry, clock)
        else:
            return self._joined(track, entry, clock)
        return clock

    def _here(self, track: Track, entry: int, clock: Ints) -> Ints | None:
        if not track.is_there:
            track.is_there = True
            self._arrive(track.team, entry, clock)
        end = self._result(track, entry)
        if end is not None and track.stream == COMPUTE_STREAM:
            _account(track.team, entry, end, clock)
        return end

    def _queued(self, track: Track, entry: int, clock: Ints) -> Ints | None:
        team = track.team
        if not track.is_there:
            posted = team.posts.pop(entry, None)
            if posted is None:
                team.waiting[~entry].append(track)
                return None
            track.is_there = True
            if team.other_won is not None:
                team.other_won[track.stream, track.at] = posted > clock
            self._arrive(team, entry, np.maximum(posted, clock))
        end = self._result(track, entry)
        if end is not None and team.joins[entry]:
            self._publish(team, entry, end)
        return end

    def _joined(self, track: Track, entry: int, clock: Ints) -> Ints | None:
        team = track.team
        end = team.ends.get(entry)
        if end is None:
            team.waiting[entry].append(track)
            return None
        team.joins[entry] -= 1
        if not team.joins[entry]:
            del team.ends[entry]
        if track.stream == COMPUTE_STREAM:
            _account(team, entry, end, clock)
        if team.other_won is not None:
            team.other_won[track.stream, track.at] = end > clock
        return np.maximum(clock, end)

    def _result(self, track: Track, entry: int) -> Ints | None:
        end = track.team.results.pop(entry, None)
        if end is None:
            track.team.waiting[_OWN + entry].append(track)
        return end

    def _arrive(self, team: Team, entry: int, arrived: Ints) -> None:
        crew = team.crew
        call = crew.calls[crew.plan.call_of[entry]]
        if call.kind == Kind.COLLECTIVE:
            arrived = self._last(team, entry, call, arrived)
        if call.alone:
            self._ended(Ending(crew, entry, arrived + call.transfer_ns))
            return
        key = (call.seam.key, crew.plan.turns[entry])
        for ending in self.meetings.meet(key, Arrival(crew, entry, call, arrived)):
            self._ended(ending)

    def _kept(self, team: Team, end: Ints) -> Amount:
        if self._keep is Keep.ALL:
            return end
        if not team.kept_place:
            return end.item(0)
        return int(end[tuple(i if size > 1 else 0 for i, size in zip(team.kept_place, end.shape, strict=True))])

    def _ended(self, ending: Ending) -> None:
        """Of communication."""
        team, entry = self._team_of[id(ending.crew)], ending.entry
        if team.kept is not None:
            team.kept[entry] = self._kept(team, ending.end)
        if team.crew.plan.ends_on[entry] != FREE:
            team.results[entry] = ending.end
            self._wake(team, _OWN + entry)
            return
        before = team.launched_end
        team.launched_end = ending.end if before is None else np.maximum(before, ending.end)
        if team.launched_ends is not None:
            team.launched_ends[entry] = ending.end
        if team.joins[entry]:
            self._publish(team, entry, ending.end)

    def _publish(self, team: Team, entry: int, end: Ints) -> None:
        team.ends[entry] = end
        self._wake(team, entry)

    def _wake(self, team: Team, what: int) -> None:
        self._ready.extend(team.waiting.pop(what, ()))


def _account(team: Team, entry: int, end: Ints, clock: Ints) -> None:
    """The compute stream stood from `clock` to `end`: as long as the transfer took for it, the rest for others."""
    number = team.crew.plan.call_of[entry]
    waited = np.maximum(end - clock, 0)
    if number < 0:
        team.late_ns[OTHER_STREAMS] = team.late_ns[OTHER_STREAMS] + waited
        return
    call = team.crew.calls[number]
    shown = np.minimum(waited, call.transfer_ns)
    team.shown_ns[call.place] = team.shown_ns[call.place] + shown
    team.late_ns[call.place] = team.late_ns[call.place] + (waited - shown)


def last_member(arrived: Ints, axes: tuple[int, ...]) -> LastMember:
    rest = [axis for axis in range(arrived.ndim) if axis not in axes]
    moved = arrived.transpose(*rest, *axes)
    flat = moved.reshape(*moved.shape[: len(rest)], -1)
    shape = [1 if axis in axes else size for axis, size in enumerate(arrived.shape)]
    return LastMember(flat.argmax(axis=-1).astype(np.int32).reshape(shape), moved.shape[len(rest) :])
