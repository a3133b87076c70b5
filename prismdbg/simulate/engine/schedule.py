"""From a simulated timeline, for one rank: when its peers are there and what it computes between its calls."""

from __future__ import annotations

from collections.abc import Sequence

from prismdbg.model import schedule as model
from prismdbg.model.schedule import Lane, Row, RowKind, Schedule
from prismdbg.simulate.cluster.transfer import OPS
from prismdbg.simulate.engine.arrivals import Arrivals, peer_of
from prismdbg.simulate.engine.engine import Team
from prismdbg.simulate.engine.timeline import RankTimeline, Timeline, rank_durations
from prismdbg.simulate.graph.channel import Across, Toward
from prismdbg.simulate.graph.entries import COMPUTE_STREAM, FREE, Entries, Kind
from prismdbg.simulate.graph.mesh import Ints, Mesh
from prismdbg.simulate.quantities import MILLION

_FAMILIES = tuple(sorted(OPS, key=lambda name: (-len(name), name)))
SLOWED_PPM = 1_100_000
_KINDS = {
    Kind.COMPUTE: RowKind.COMPUTE,
    Kind.COLLECTIVE: RowKind.COLLECTIVE,
    Kind.SEND: RowKind.SEND,
    Kind.RECV: RowKind.RECV,
    Kind.WAIT: RowKind.WAIT,
}


def schedule_of(
    timeline: Timeline,
    rank: int,
    arrivals: Arrivals,
    *,
    step: int = 0,
    steps: Sequence[int] | None = None,
    slowed: Arrivals | None = None,
    contention_ppm: int = 0,
    slower_ppm: int = MILLION,
) -> Schedule:
    """Memory events are left out. `arrivals`: of this timeline, made once for all ranks. steps: which are
    like `step`; None for all up to it. slowed: of the same job, where all ranks compute `SLOWED_PPM` as long."""
    of_rank = timeline.of(rank)
    team, place = timeline.team_of(rank)
    lanes = _Lanes(timeline, rank, team)
    durations = rank_durations(team.crew, place)
    rows: list[Row] = []
    numbers: dict[int, int] = {}
    for entry in range(len(of_rank.entries)):
        row = _row(of_rank, entry, durations, numbers, lanes, arrivals, slowed)
        if row is not None:
            numbers[entry] = len(rows)
            rows.append(row)
    return Schedule(
        rank=rank,
        step=step,
        steps=tuple(range(step + 1) if steps is None else steps),
        iteration_ns=iteration_ns(of_rank),
        streams=of_rank.entries.streams,
        channels=tuple(lanes.lanes),
        rows=tuple(rows),
        families=_FAMILIES,
        contention_ppm=contention_ppm,
        slower_ppm=slower_ppm,
    )


def iteration_ns(of_rank: RankTimeline) -> int:
    """Until the rank's main stream has done its last: what the program itself sees."""
    entries = of_rank.entries
    holds = entries.stream == COMPUTE_STREAM
    holds |= entries.communicates & (entries.blocking == 1) & (entries.issuer == COMPUTE_STREAM)
    return int(of_rank.end_ns[holds].max(initial=0))


def _row(
    of_rank: RankTimeline,
    entry: int,
    durations: Ints,
    numbers: dict[int, int],
    lanes: _Lanes,
    arrivals: Arrivals,
    slowed: Arrivals | None,
) -> Row | None:
    entries = of_rank.entries
    kind = Kind(int(entries.kind[entry]))
    if kind == Kind.MEMORY:
        return None
    stream = _number(entries, entry)
    line = entries.texts[entries.line[entry]]
    if kind == Kind.COMPUTE:
        return Row(kind=_KINDS[kind], stream=stream, duration_ns=int(durations[entry]), line=line)
    if kind == Kind.WAIT:
        return Row(kind=_KINDS[kind], stream=stream, target=numbers[int(entries.target[entry])], line=line)
    others_ns, start_ns = arrivals.others_ns(of_rank.rank, entry), int(of_rank.start_ns[entry])
    later_ns = slowed.others_ns(of_rank.rank, entry) - others_ns if slowed is not None else 0
    return Row(
        kind=_KINDS[kind],
        stream=stream,
        issuer=int(entries.issuer[entry]),
        blocking=bool(entries.blocking[entry]),
        op=entries.texts[entries.op[entry]],
        channel=lanes.number(entry),
        size_bytes=int(entries.size_bytes[entry]),
        others_ns=others_ns,
        others_gain_ns=later_ns * MILLION // (SLOWED_PPM - MILLION),
        late_ns=max(others_ns - start_ns, 0),
        transfer_ns=int(of_rank.end_ns[entry]) - max(start_ns, others_ns),
        line=line,
    )


def _number(entries: Entries, entry: int) -> int:
    stream = int(entries.stream[entry])
    return model.NO_STREAM if stream == FREE else stream


class _Lanes:
    """The channels that a rank uses, as it can tell them apart: by members, or by the peer."""

    def __init__(self, timeline: Timeline, rank: int, team: Team) -> None:
        self._timeline, self._rank = timeline, rank
        self._entries = team.crew.plan.entries
        self._channels = timeline.graph.stitching.channels[team.crew.cohort.rank_class]
        self._numbers: dict[int, int] = {}
        self.lanes: list[Lane] = []

    def number(self, entry: int) -> int:
        place = int(self._entries.channel[entry])
        if place not in self._numbers:
            self._numbers[place] = len(self.lanes)
            self.lanes.append(self._lane(entry, place))
        return self._numbers[place]

    def _lane(self, entry: int, place: int) -> Lane:
        channel, name = self._channels[place], self._entries.channels[place]
        if isinstance(channel, Toward):
            return Lane(name=name, members=2, peer=peer_of(self._timeline, self._rank, entry), tag=_tag(channel.tag))
        ranks = members_of(self._timeline.graph.mesh, self._rank, channel)
        return Lane(name=name, members=len(ranks), digest=model.digest(ranks))


def members_of(mesh: Mesh, rank: int, channel: Across) -> list[int]:
    """Of the group on this channel that holds `rank`."""
    at = mesh.coordinates(rank)
    index: list[slice | int | list[int]] = [slice(None) if name in channel.axes else at[name] for name in mesh.names]
    if channel.members:
        index[mesh.axis(channel.axes[0])] = list(channel.members)
    ranks: list[int] = mesh.ranks()[tuple(index)].ravel().tolist()
    return ranks


def _tag(text: str) -> int:
    return int(text) if text.lstrip("-").isdecimal() else 0
