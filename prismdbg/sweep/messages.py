"""How large the messages of each mesh axis are, and how much of their links' rate they reach."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from prismdbg.simulate.cluster.cluster import ClusterModel
from prismdbg.simulate.cluster.transfer import collective_ns, point_to_point_ns
from prismdbg.simulate.engine.prepared_cohort import Asked, Call
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.engine.topology import Placed, Topology
from prismdbg.simulate.graph.channel import Channel, Toward
from prismdbg.simulate.graph.cohorts import Cohort
from prismdbg.simulate.graph.entries import Kind
from prismdbg.simulate.graph.mesh import Ints
from prismdbg.simulate.quantities import MILLION


def axes_of(channel: str) -> str:
    """Of `pp+1#f`, `pp-1#b` and `pp[0,3]`: `pp`."""
    return re.split(r"[\[#+-]", channel, maxsplit=1)[0]


def message_bytes(timeline: Timeline) -> dict[str, float]:
    """By axis, the mean of all messages of all ranks."""
    graph, sizes, counts = timeline.graph, defaultdict[str, float](float), defaultdict[str, int](int)
    ranks = np.bincount(graph.class_at.ravel(), minlength=len(graph.classes)).tolist()
    for rank_class, count in zip(graph.classes, ranks, strict=True):
        entries = rank_class.entries
        for place in entries.communicates.nonzero()[0]:
            axis = axes_of(entries.channels[entries.channel[place]])
            sizes[axis] += float(entries.size_bytes[place]) * count
            counts[axis] += count
    return {axis: sizes[axis] / counts[axis] for axis in sizes}


def link_shares(timeline: Timeline, cluster: ClusterModel) -> dict[str, float]:
    """By axis: what its messages would take at the full rate of the links, without latency and alone on them, over
    what they take. What an algorithm passes on counts: of an all-gather of S bytes between n ranks, each link carries
    (n-1)/n S. Empty for links without a rate."""
    least_ns, taken_ns = defaultdict[str, float](float), defaultdict[str, float](float)
    links = _Links(timeline, cluster)
    for cohort, axis, call, asked, count in _calls(timeline):
        if (least := links.least_ns(cohort, call, asked)) is None:
            continue
        least_ns[axis] += least * count
        taken_ns[axis] += _of_all(np.asarray(call.transfer_ns), cohort) * count
    return {axis: least_ns[axis] / taken for axis, taken in taken_ns.items() if taken and least_ns[axis]}


def _calls(timeline: Timeline) -> Iterator[tuple[Cohort, str, Call, Asked, int]]:
    """With its axis, and how often each rank of the cohort makes it."""
    for team in timeline.teams:
        plan, calls = team.crew.plan, team.crew.calls
        made = np.array(plan.call_of, dtype=np.int64)
        counts = np.bincount(made[made >= 0], minlength=len(calls)).tolist()
        for call, asked, count in zip(calls, plan.asked, counts, strict=True):
            yield team.crew.cohort, axes_of(plan.entries.channels[call.place]), call, asked, count


class _Links:
    def __init__(self, timeline: Timeline, cluster: ClusterModel) -> None:
        tiers = (replace(tier, latency_ns=0, measured={}) for tier in cluster.tiers)
        self._bare = ClusterModel(
            tiers=tuple(tiers), ranks_per_node=cluster.ranks_per_node, algorithms=cluster.algorithms
        )
        graph = timeline.graph
        even = np.full(graph.mesh.world, MILLION, dtype=np.int64)
        self._topology = Topology.of(graph.mesh, graph.stitching.cohorts.layout, self._bare, even)
        self._users = graph.stitching.users
        self._placed: dict[Channel, Placed] = {}

    def least_ns(self, cohort: Cohort, call: Call, asked: Asked) -> float | None:
        """Of all ranks of the cohort together; None where a link that one of them uses has no rate."""
        channel = call.seam.channel
        if channel not in self._placed:
            self._placed[channel] = self._topology.place(channel, self._users[channel])
        where = self._placed[channel]
        which = where.which
        if asked.kind == Kind.RECV and isinstance(channel, Toward):  # placed by sender
            which = np.roll(which, channel.offset, call.seam.axes[0])
        used = cohort.cut(which)
        if not all(self._bare.tiers[where.geometries[each].tier].rate for each in np.unique(used).tolist()):
            return None
        times = [
            collective_ns(self._bare, asked.op, asked.size_bytes, replace(each, sharing=min(each.sharing, 1)))
            if asked.kind == Kind.COLLECTIVE
            else point_to_point_ns(self._bare, asked.size_bytes, each.tier, 0)
            for each in where.geometries
        ]
        return _of_all(np.array(times)[used], cohort)


def _of_all(amount: Ints, cohort: Cohort) -> float:
    """The sum over its ranks."""
    return float(np.broadcast_to(amount, cohort.shape).sum(dtype=np.float64))
