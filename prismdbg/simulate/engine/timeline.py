"""What a simulation found: when each rank was done, what it waited for, and when everything of a rank was.

Of each rank: computed + shown + late + tail = the iteration, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismdbg.errors import UsageError
from prismdbg.simulate.assessment.fidelity import Fidelity
from prismdbg.simulate.cluster.cluster import ClusterModel
from prismdbg.simulate.engine.engine import Keep, Team
from prismdbg.simulate.engine.prepared_cohort import Amount, PreparedCohort
from prismdbg.simulate.engine.rendezvous import Rendezvous
from prismdbg.simulate.graph.entries import FREE, Entries, Kind
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Ints
from prismdbg.simulate.quantities import MILLION

OTHER_STREAMS = "other streams"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankTimeline:
    """Of one rank, a row an entry: when it began and ended. Communication begins when this rank is there."""

    rank: int
    entries: Entries
    start_ns: Ints
    end_ns: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Timeline:
    """Vectors are by rank and of the compute stream; the maps go by channel.

    shown_ns: transfer that nothing hid. late_ns: waiting for others. transfer_ns: all of it, hidden or not.
    ended_ns: when the last stream of the rank ended. `events`: of how many entries of all ranks this is the timeline.
    """

    graph: JobGraph
    cluster: ClusterModel
    iteration_ns: int
    computed_ns: Ints
    shown_ns: Mapping[str, Ints]
    late_ns: Mapping[str, Ints]
    transfer_ns: Mapping[str, Ints]
    ended_ns: Ints
    fidelity: Fidelity
    keep: Keep
    teams: tuple[Team, ...]
    meetings: Rendezvous

    @property
    def tail_ns(self) -> Ints:
        """Of each rank, after its compute stream was done."""
        busy = sum((*self.shown_ns.values(), *self.late_ns.values()), self.computed_ns)
        return self.iteration_ns - busy

    @property
    def exposed_ns(self) -> Ints:
        return sum(self.shown_ns.values(), np.zeros_like(self.computed_ns))

    @property
    def bubble_share(self) -> float:
        """Of all ranks' time: neither computing nor transferring, so waiting for others or done before them."""
        idle = self.iteration_ns - self.computed_ns - self.exposed_ns
        return float(idle.sum()) / (len(idle) * self.iteration_ns) if self.iteration_ns else 0.0

    def team_of(self, rank: int) -> tuple[Team, tuple[int, ...]]:
        """With the rank's place in it."""
        return find_team(self.graph, self.teams, rank)

    def first_rank(self, team: Team) -> int:
        """The one whose timeline `Keep.FIRST` has."""
        cohorts = self.graph.stitching.cohorts
        return self.graph.mesh.rank(**dict(zip(cohorts.layout.names, team.crew.cohort.first, strict=True)))

    def of(self, rank: int) -> RankTimeline:
        team, place = self.team_of(rank)
        kept = self.keep is Keep.ALL or place == (team.kept_place or (0,) * len(place))
        if team.kept is None or not kept:
            raise UsageError(
                f"the timeline of {self.graph.mesh.say(rank)} was not kept", hint="simulate with Keep.ALL to have it"
            )
        ends = {entry: amount_at(end, place) for entry, end in team.kept.items()}
        return _follow(rank, team.crew, place, ends)


def find_team(graph: JobGraph, teams: Sequence[Team], rank: int) -> tuple[Team, tuple[int, ...]]:
    """The rank's team, and its place in it."""
    coordinates, cohorts = graph.mesh.coordinates(rank), graph.stitching.cohorts
    place = tuple(coordinates[name] for name in cohorts.layout.names)
    team = teams[int(cohorts.at[place])]
    along = zip(team.crew.cohort.coordinates, place, strict=True)
    return team, tuple(int(np.searchsorted(axis, at)) for axis, at in along)


def at(array: NDArray[Any], place: tuple[int, ...]) -> int:
    """One rank's value, where size 1 along an axis holds for all."""
    return int(array[tuple(i if size > 1 else 0 for i, size in zip(place, array.shape, strict=True))])


def amount_at(amount: Amount, place: tuple[int, ...]) -> int:
    return amount if isinstance(amount, int) else at(amount, place)


def rank_durations(crew: PreparedCohort, place: tuple[int, ...]) -> Ints:
    """Of each computation on this rank."""
    durations = crew.plan.durations_ns * amount_at(crew.compute_ppm, place) // MILLION
    for entry, extra_ns in crew.delayed:
        durations[entry] += at(extra_ns, place)
    return durations


def _follow(rank: int, crew: PreparedCohort, place: tuple[int, ...], ends: dict[int, int]) -> RankTimeline:
    """In program order: by then everything that an entry depends on is known."""
    entries = crew.plan.entries
    durations = rank_durations(crew, place).tolist()
    start_ns, end_ns = [0] * len(entries), [0] * len(entries)
    clocks = [0] * (FREE + 1)
    columns = (entries.kind, entries.stream, entries.issuer, entries.blocking, entries.target)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for entry, (kind, stream, issuer, blocking, target) in enumerate(rows):
        start = clocks[stream]
        if kind == Kind.COMPUTE:
            clocks[stream] = end = start + durations[entry]
        elif kind == Kind.WAIT:
            clocks[stream] = end = max(start, end_ns[target])
        elif kind == Kind.MEMORY:
            end = start
        else:
            start = clocks[issuer] if stream == FREE else max(clocks[issuer], start)
            end = ends[entry]
            if stream != FREE:
                clocks[stream] = end
            if blocking:
                clocks[issuer] = max(clocks[issuer], end)
        start_ns[entry], end_ns[entry] = start, end
    return RankTimeline(rank=rank, entries=entries, start_ns=np.array(start_ns), end_ns=np.array(end_ns))
