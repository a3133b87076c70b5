"""When the others come to what one rank takes part in: of a simulated timeline, a rank's own arrival left out."""

from __future__ import annotations

from math import prod

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.simulate.engine.engine import Keep, Team
from prismdbg.simulate.engine.prepared_cohort import Amount, Call
from prismdbg.simulate.engine.timeline import Timeline, amount_at
from prismdbg.simulate.graph.channel import Toward
from prismdbg.simulate.graph.entries import FREE, Kind
from prismdbg.simulate.graph.mesh import Ints
from prismdbg.simulate.quantities import MILLION

NOBODY = 0  # an arrival that is never the last

Meeting = tuple[int, Kind, int]  # seam, kind and turn on it


class Arrivals:
    """Of a timeline with `Keep.ALL`. Cohorts are followed once, whatever the number of ranks asked for."""

    def __init__(self, timeline: Timeline) -> None:
        if timeline.keep is not Keep.ALL:
            raise UsageError("the ends of all ranks were not kept", hint="simulate with Keep.ALL")
        self._timeline = timeline
        self._starts: dict[int, dict[Meeting, Amount]] = {}

    def others_ns(self, rank: int, entry: int) -> int:
        """When the last other member is there; of an eager message when it is there. `NOBODY`: none is waited for."""
        team, place = self._timeline.team_of(rank)
        plan = team.crew.plan
        call = team.crew.calls[plan.call_of[entry]]
        meeting = call.seam.key, call.kind, plan.turns[entry]
        if call.kind == Kind.COLLECTIVE:
            return self._last(team, place, call, meeting)
        if call.kind == Kind.SEND and call.eager:
            return NOBODY
        there_ns = self._peer(rank, team, entry, meeting)
        return there_ns + (amount_at(call.transfer_ns, place) if call.eager else 0)

    def _last(self, team: Team, place: tuple[int, ...], call: Call, meeting: Meeting) -> int:
        """`place`: the rank's in its cohort."""
        cohorts = self._timeline.graph.stitching.cohorts
        own = cohorts.members[team.crew.cohort.number]
        here = [int(along[at]) for along, at in zip(own.coordinates, place, strict=True)]
        last = NOBODY
        for number in call.seam.parties:
            party = cohorts.members[number]
            start = self._start(number)[meeting]
            sizes = [len(party.coordinates[axis]) for axis in call.seam.axes]
            without = None
            if number == own.number:
                without = np.ravel_multi_index([place[axis] for axis in call.seam.axes], sizes)
                if prod(sizes) == 1:
                    continue
            if isinstance(start, int):
                last = max(last, start)
                continue
            index: list[slice | int] = []
            for axis, (along, size) in enumerate(zip(party.coordinates, start.shape, strict=True)):
                at = int(np.searchsorted(along, here[axis])) if size > 1 else 0
                index.append(slice(None) if axis in call.seam.axes else at)
            ascending = sorted(call.seam.axes)
            part = start[tuple(index)].transpose([ascending.index(axis) for axis in call.seam.axes])
            members = np.broadcast_to(part, sizes).ravel()
            last = max(last, int((members if without is None else np.delete(members, without)).max()))
        return last

    def _peer(self, rank: int, team: Team, entry: int, meeting: Meeting) -> int:
        """When the sender, or the receiver, is there."""
        peer = self._timeline.team_of(peer_of(self._timeline, rank, entry))
        seam, kind, turn = meeting
        other = Kind.RECV if kind == Kind.SEND else Kind.SEND
        return amount_at(self._start(peer[0].crew.cohort.number)[seam, other, turn], peer[1])

    def _start(self, number: int) -> dict[Meeting, Amount]:
        if number not in self._starts:
            team = next(team for team in self._timeline.teams if team.crew.cohort.number == number)
            self._starts[number] = _starts(team)
        return self._starts[number]


def peer_of(timeline: Timeline, rank: int, entry: int) -> int:
    """The rank that a send goes to, or a receive comes from."""
    team, _ = timeline.team_of(rank)
    graph = timeline.graph
    channel = graph.stitching.channels[team.crew.cohort.rank_class][int(team.crew.plan.entries.channel[entry])]
    assert isinstance(channel, Toward), "only a send or a receive has a peer"
    place = graph.mesh.coordinates(rank)
    place[channel.axis] = (place[channel.axis] + channel.offset) % graph.mesh.size(channel.axis)
    return graph.mesh.rank(**place)


def _starts(team: Team) -> dict[Meeting, Amount]:
    """When each rank of a cohort is there, of all its communication. As `timeline.of`, for all ranks at once."""
    crew, kept = team.crew, team.kept
    assert kept is not None
    plan, entries = crew.plan, crew.plan.entries
    extra = dict(crew.delayed)
    ends: list[Amount] = [0] * len(entries)
    clocks: list[Amount] = [0] * (FREE + 1)
    found: dict[Meeting, Amount] = {}
    columns = (entries.kind, entries.stream, entries.issuer, entries.blocking, entries.target, plan.durations_ns)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for entry, (kind, stream, issuer, blocking, target, duration_ns) in enumerate(rows):
        start = clocks[stream]
        if kind == Kind.COMPUTE:
            taken: Amount = duration_ns * crew.compute_ppm // MILLION
            if entry in extra:
                taken = taken + extra[entry]
            clocks[stream] = ends[entry] = start + taken
        elif kind == Kind.WAIT:
            clocks[stream] = ends[entry] = _later(start, ends[target])
        elif kind != Kind.MEMORY:
            start = clocks[issuer] if stream == FREE else _later(clocks[issuer], start)
            call = crew.calls[plan.call_of[entry]]
            found[call.seam.key, call.kind, plan.turns[entry]] = start
            ends[entry] = kept[entry]
            if stream != FREE:
                clocks[stream] = kept[entry]
            if blocking:
                clocks[issuer] = _later(clocks[issuer], kept[entry])
    return found


def _later(a: Amount, b: Amount) -> Amount:
    later: int | Ints = max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)
    return later
