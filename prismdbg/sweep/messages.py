"""How large the messages of each mesh axis are, and how much of their links' rate they reach."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from prismdbg.simulate.cluster.cluster import ClusterModel
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.graph.mesh import Mesh

SECOND_NS = 1e9


def axes_of(channel: str) -> str:
    """Of `pp+1#f`, `pp-1#b` and `pp[0,3]`: `pp`."""
    return re.split(r"[\[#+-]", channel, maxsplit=1)[0]


def message_bytes(timeline: Timeline) -> dict[str, float]:
    """By axis, the mean of all messages of all ranks."""
    sizes, counts = _sent(timeline)
    return {axis: sizes[axis] / counts[axis] for axis in sizes}


def link_shares(timeline: Timeline, cluster: ClusterModel) -> dict[str, float]:
    """By axis: bytes of its messages over their time, of the rate of the links that its groups span. Empty for links
    without a rate. What an algorithm sends again counts once."""
    sizes, _ = _sent(timeline)
    taken_ns: dict[str, float] = defaultdict(float)
    for channel, of_ranks in timeline.transfer_ns.items():
        taken_ns[axes_of(channel)] += float(of_ranks.sum())
    rates = {axis: _rate(timeline.graph.mesh, axis, cluster) for axis in sizes}
    return {
        axis: sizes[axis] / taken_ns[axis] * SECOND_NS / rates[axis]
        for axis in sizes
        if rates[axis] and taken_ns.get(axis)
    }


def _sent(timeline: Timeline) -> tuple[dict[str, float], dict[str, int]]:
    """Bytes and messages of all ranks."""
    graph, sizes, counts = timeline.graph, defaultdict[str, float](float), defaultdict[str, int](int)
    ranks = np.bincount(graph.class_at.ravel(), minlength=len(graph.classes)).tolist()
    for rank_class, count in zip(graph.classes, ranks, strict=True):
        entries = rank_class.entries
        for place in entries.communicates.nonzero()[0]:
            axis = axes_of(entries.channels[entries.channel[place]])
            sizes[axis] += float(entries.size_bytes[place]) * count
            counts[axis] += count
    return dict(sizes), dict(counts)


def _rate(mesh: Mesh, axes: str, cluster: ClusterModel) -> int:
    """Of the nearest links that hold a group along these axes; along none of the mesh, those of the whole job."""
    named = [axis for axis in axes.split(",") if axis in mesh.names]
    ends = {axis: mesh.size(axis) - 1 if not named or axis in named else 0 for axis in mesh.names}
    last = mesh.rank(**ends)
    return next(tier.rate for tier in cluster.tiers if not tier.spans or last < tier.spans)
