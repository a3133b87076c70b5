"""What the iteration's length is made of: computations and transfers, each of which waited for the one before it.

Walked backwards from what ended last, over who was noted as last wherever something waited. It has no gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.model.meanwhile import working
from prismdbg.simulate.engine.engine import Team, Track
from prismdbg.simulate.engine.prepared_cohort import Call
from prismdbg.simulate.engine.program import Step
from prismdbg.simulate.engine.rendezvous import Arrival
from prismdbg.simulate.engine.timeline import Timeline, amount_at, at
from prismdbg.simulate.graph.entries import FREE, Entries, Kind
from prismdbg.simulate.graph.mesh import Ints
from prismdbg.simulate.quantities import MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One entry of one rank on the path. `channel` is empty for a computation."""

    rank: int
    entry: int
    name: str
    channel: str
    line: str
    start_ns: int
    end_ns: int

    @property
    def taken_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(slots=True, eq=False)
class _Walker:
    """Stands before instruction `index` of a stream of one rank: all before it was done by `time_ns`."""

    timeline: Timeline
    team: Team
    place: tuple[int, ...]
    stream: int
    index: int
    time_ns: int
    known: dict[int, dict[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)

    def parts(self) -> Iterator[Part]:
        while self.index > 0:
            self.index -= 1
            step, number = Step(self._track.steps[self.index]), self._track.numbers[self.index]
            if step is Step.RUN:
                yield from self._computed(number)
            elif step is Step.JOIN:
                yield from self._joined(number)
            elif step in (Step.HERE, Step.QUEUED):
                yield from self.communicated(number)

    @property
    def _track(self) -> Track:
        return self.team.tracks[self.stream]

    @property
    def _entries(self) -> Entries:
        return self.team.crew.plan.entries

    def _computed(self, run: int) -> Iterator[Part]:
        plan, crew = self.team.crew.plan, self.team.crew
        starts = plan.program.run_starts
        end = int(starts[run + 1]) if run + 1 < len(starts) else len(plan.program.runs)
        slower = amount_at(crew.compute_ppm, self.place)
        for entry in reversed(plan.program.runs[starts[run] : end].tolist()):
            taken_ns = int(plan.durations_ns[entry]) * slower // MILLION
            taken_ns += sum(at(extra, self.place) for delayed, extra in crew.delayed if delayed == entry)
            yield self._part(entry, taken_ns)

    def _joined(self, entry: int) -> Iterator[Part]:
        won = (self.team.other_won or {})[self.stream, self.index]
        if not at(won, self.place):
            return
        if self.team.crew.plan.call_of[entry] >= 0 and self.team.crew.plan.ends_on[entry] == FREE:
            yield from self.communicated(entry)
            return
        known = self._where(Step.MARK, entry) or self._where(Step.QUEUED, entry)
        assert known is not None, "what is joined ends on a stream"
        self.stream, self.index = known[0], known[1] + 1

    def communicated(self, entry: int) -> Iterator[Part]:
        """The transfer, then on to where the last of those who took part came from."""
        call = self.team.crew.calls[self.team.crew.plan.call_of[entry]]
        taken_ns, last, last_entry, place = self._last(entry, call)
        yield self._part(entry, taken_ns)
        self.team, self.place = last, place
        self._before(last_entry)

    def _before(self, entry: int) -> None:
        """To what made this rank come to the communication when it did."""
        for step in (Step.HERE, Step.LAUNCH):
            if (known := self._where(step, entry)) is not None:
                self.stream, self.index = known
                return
        known, posted = self._where(Step.QUEUED, entry), self._where(Step.POST, entry)
        assert known is not None and posted is not None, "what is queued was posted"
        was_posted_last = at((self.team.other_won or {})[known], self.place)
        self.stream, self.index = posted if was_posted_last else known

    def _last(self, entry: int, call: Call) -> tuple[int, Team, int, tuple[int, ...]]:
        """How long the transfer took after whose arrival: its team, entry and place."""
        own_ns = amount_at(call.transfer_ns, self.place)
        if call.alone:
            return own_ns, self.team, entry, self._member(self.team, entry, call, self.place)
        key = (call.seam.key, self.team.crew.plan.turns[entry])
        arrivals, who = (self.timeline.meetings.last or {})[key]
        if call.kind != Kind.COLLECTIVE:
            return self._pair(entry, call, arrivals, who)
        taken_ns = max(amount_at(a.call.transfer_ns, self._in_group(a, self.place)) for a in arrivals)
        arrival = arrivals[at(who, self._in_group(arrivals[0], self.place))]
        team = self._team(arrival)
        place = self.place if team is self.team else self._in_group(arrival, self.place)
        return taken_ns, team, arrival.entry, self._member(team, arrival.entry, arrival.call, place)

    def _pair(
        self, entry: int, call: Call, arrivals: list[Arrival], who: Ints
    ) -> tuple[int, Team, int, tuple[int, ...]]:
        sender, receiver = arrivals
        axis, order = receiver.call.seam.axes[0], receiver.call.seam.from_sender
        place, peer = list(self.place), list(self.place)
        if order is not None:
            turned = np.argsort(order) if call.kind == Kind.SEND else order
            peer[axis] = int(turned[place[axis]])
        sent, received = (place, peer) if call.kind == Kind.SEND else (peer, place)
        own_ns = amount_at(call.transfer_ns, self.place)
        if call.eager and call.kind == Kind.SEND:
            return own_ns, self.team, entry, self.place
        if at(who, tuple(received)):
            taken_ns = 0 if call.eager else self._longest(sender, tuple(sent), receiver, tuple(received))
            return taken_ns, self._team(receiver), receiver.entry, tuple(received)
        taken_ns = own_ns if call.eager else self._longest(sender, tuple(sent), receiver, tuple(received))
        return taken_ns, self._team(sender), sender.entry, tuple(sent)

    def _longest(self, a: Arrival, at_a: tuple[int, ...], b: Arrival, at_b: tuple[int, ...]) -> int:
        return max(amount_at(a.call.transfer_ns, at_a), amount_at(b.call.transfer_ns, at_b))

    def _in_group(self, arrival: Arrival, place: tuple[int, ...]) -> tuple[int, ...]:
        """The first member in that cohort: the group's axes at 0."""
        return tuple(0 if axis in arrival.call.seam.axes else i for axis, i in enumerate(place))

    def _member(self, team: Team, entry: int, call: Call, place: tuple[int, ...]) -> tuple[int, ...]:
        known = (team.last_member or {}).get(entry)
        if known is None:
            return place
        chosen = np.unravel_index(at(known.number, self._without(call, place)), known.sizes)
        found = list(place)
        for axis, size, index in zip(call.seam.axes, known.sizes, chosen, strict=True):
            found[axis] = int(index) if size > 1 else found[axis]
        return tuple(found)

    def _without(self, call: Call, place: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(0 if axis in call.seam.axes else i for axis, i in enumerate(place))

    def _team(self, arrival: Arrival) -> Team:
        return self.timeline.teams[arrival.crew.cohort.number]

    def _where(self, step: Step, entry: int) -> tuple[int, int] | None:
        program = self.team.crew.plan.program
        if id(program) not in self.known:
            self.known[id(program)] = program.places
        return self.known[id(program)].get((step, entry))

    def _part(self, entry: int, taken_ns: int) -> Part:
        entries = self._entries
        end_ns = self.time_ns
        self.time_ns -= taken_ns
        talks = bool(entries.communicates[entry])
        return Part(
            rank=self._rank(),
            entry=entry,
            name=entries.texts[entries.op[entry]] if talks else entries.texts[entries.label[entry]],
            channel=entries.channels[entries.channel[entry]] if talks else "",
            line=entries.texts[entries.line[entry]],
            start_ns=self.time_ns,
            end_ns=end_ns,
        )

    def _rank(self) -> int:
        names = self.timeline.graph.stitching.cohorts.layout.names
        along = zip(names, self.team.crew.cohort.coordinates, self.place, strict=True)
        return self.timeline.graph.mesh.rank(**{name: int(axis[i]) for name, axis, i in along})


def critical_path(timeline: Timeline) -> list[Part]:
    """From the start to the end of the iteration; each part begins where the one before it ends."""
    if timeline.meetings.last is None:
        raise UsageError("this simulation has no critical path", hint="simulate with trace=True")
    rank = int(timeline.ended_ns.argmax())
    team, place = timeline.team_of(rank)
    walker = _Walker(timeline, team, place, 0, 0, timeline.iteration_ns)
    parts: list[Part] = []
    for track in team.tracks:
        if at(track.clock, place) == timeline.iteration_ns:
            walker.stream, walker.index = track.stream, len(track.steps)
            break
    else:
        ends = (team.launched_ends or {}).items()
        parts += walker.communicated(next(e for e, end in ends if at(end, place) == timeline.iteration_ns))
    with working() as tell:
        for part in walker.parts():
            parts.append(part)
            found = 1 - walker.time_ns / max(timeline.iteration_ns, 1)
            tell(f"finding the critical path: {found:.0%} of the iteration")
    assert walker.time_ns == 0, f"the path begins {walker.time_ns} ns too late"
    return [part for part in reversed(parts) if part.taken_ns]
