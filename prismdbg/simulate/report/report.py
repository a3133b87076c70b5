"""A timeline as rows for people: stages, waits by axis, stragglers, the critical path. Rows are values, texts are drawn
from them in `charts`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prismdbg.simulate.engine.critical_path import Part
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.graph.entries import COMPUTE_STREAM, Kind
from prismdbg.simulate.graph.mesh import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisRow:
    """Per rank on average. late: waiting for others. shown: transfer that nothing hid; hidden: the rest of it."""

    channel: str
    late_ns: int
    most_late_ns: int
    most_late_rank: int
    shown_ns: int
    hidden_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerRow:
    """`computed_ns` against the median of the ranks of its class: what it costs alone, not what it costs the job."""

    rank: int
    coordinates: str
    class_name: str
    computed_ns: int
    excess_ns: int
    waited_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A computation of the compute stream."""

    label: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """One cohort, by its first rank. The shares are of the iteration, and all of it together. shown: communication that
    nothing hides; idle: waiting for others, or done before them."""

    name: str
    rank: int
    ranks: int
    computed: float
    shown: float
    idle: float
    peak_bytes: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRow:
    """All parts of the critical path with this rank, operation and channel. `times`: how many."""

    rank: int
    name: str
    channel: str
    taken_ns: int
    times: int


def by_axis(timeline: Timeline) -> list[AxisRow]:
    """The longest lateness and transfer first."""
    rows = []
    for channel in dict.fromkeys([*timeline.late_ns, *timeline.shown_ns, *timeline.transfer_ns]):
        none = np.zeros_like(timeline.computed_ns)
        late, shown = timeline.late_ns.get(channel, none), timeline.shown_ns.get(channel, none)
        all_of_it = timeline.transfer_ns.get(channel, none)
        rows.append(
            AxisRow(
                channel=channel,
                late_ns=_mean(late),
                most_late_ns=int(late.max()),
                most_late_rank=int(late.argmax()),
                shown_ns=_mean(shown),
                hidden_ns=_mean(np.maximum(all_of_it - shown, 0)),
            )
        )
    return sorted(rows, key=lambda row: -(row.late_ns + row.shown_ns))


def stragglers(timeline: Timeline, most: int = 10) -> list[StragglerRow]:
    """Those that compute longest beyond the median of their class."""
    mesh, class_at = timeline.graph.mesh, timeline.graph.class_at
    class_of = np.empty(mesh.world, dtype=np.int64)
    class_of[mesh.ranks().ravel()] = class_at
    excess = timeline.computed_ns.copy()
    for number in range(len(timeline.graph.classes)):
        chosen = class_of == number
        if chosen.any():
            excess[chosen] -= int(np.median(timeline.computed_ns[chosen]))
    late = sum(timeline.late_ns.values(), np.zeros_like(excess))
    order = np.argsort(-excess, kind="stable")[:most]
    return [
        StragglerRow(
            rank=rank,
            coordinates=" ".join(f"{name}={at}" for name, at in mesh.coordinates(rank).items()),
            class_name=timeline.graph.classes[class_of[rank]].name,
            computed_ns=int(timeline.computed_ns[rank]),
            excess_ns=int(excess[rank]),
            waited_ns=int(late[rank]),
        )
        for rank in order.tolist()
        if excess[rank] > 0
    ]


def stages(timeline: Timeline) -> list[StageRow]:
    """One row a cohort, in the order of their first ranks. Needs a timeline that kept its first ranks."""
    rows = []
    for team in sorted(timeline.teams, key=timeline.first_rank):
        rank = timeline.first_rank(team)
        iteration = max(timeline.iteration_ns, 1)
        entries = team.crew.plan.entries
        rows.append(
            StageRow(
                name=timeline.graph.classes[team.crew.cohort.rank_class].name,
                rank=rank,
                ranks=team.crew.cohort.size,
                computed=int(timeline.computed_ns[rank]) / iteration,
                shown=int(timeline.exposed_ns[rank]) / iteration,
                idle=int(iteration - timeline.computed_ns[rank] - timeline.exposed_ns[rank]) / iteration,
                peak_bytes=entries.peak_bytes(),
                spans=_spans(timeline, rank),
            )
        )
    return rows


def path_rows(parts: Sequence[Part]) -> list[PathRow]:
    """The largest first."""
    taken: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for part in parts:
        taken[part.rank, _operation(part.name), part.channel].append(part.taken_ns)
    rows = [
        PathRow(rank=rank, name=name, channel=channel, taken_ns=sum(times), times=len(times))
        for (rank, name, channel), times in taken.items()
    ]
    return sorted(rows, key=lambda row: -row.taken_ns)


def _spans(timeline: Timeline, rank: int) -> tuple[Span, ...]:
    """Neighbours whose labels begin with the same word are one; of a microbatch with what lies between: `F3 attention`,
    `F3 mlp`.
    """
    of = timeline.of(rank)
    chosen = np.flatnonzero((of.entries.kind == Kind.COMPUTE) & (of.entries.stream == COMPUTE_STREAM))
    spans: list[Span] = []
    for entry in chosen.tolist():
        label = of.entries.texts[of.entries.label[entry]].partition(" ")[0]
        start_ns, end_ns = int(of.start_ns[entry]), int(of.end_ns[entry])
        is_next = bool(spans) and spans[-1].label == label
        if is_next and (label[-1:].isdecimal() or spans[-1].end_ns == start_ns):
            start_ns = spans.pop().start_ns
        spans.append(Span(label=label, start_ns=start_ns, end_ns=end_ns))
    return tuple(spans)


def _operation(name: str) -> str:
    """Without the microbatch: `mlp` of `F3 mlp`."""
    first, _, rest = name.partition(" ")
    return rest if rest and first[-1].isdecimal() else name


def _mean(values: Ints) -> int:
    return round(float(values.mean()))
