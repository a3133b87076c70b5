"""All ranks of a simulated job as a map by mesh coordinates: how long each waits, how late it comes, what it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from prismdbg.simulate.engine.timeline import OTHER_STREAMS, Timeline
from prismdbg.simulate.graph.channel import Across, parse
from prismdbg.simulate.graph.entries import Entries, Kind
from prismdbg.simulate.graph.mesh import Ints, Mesh

ASPECT = 8.0  # columns to a row that look best


class Measure(StrEnum):
    """Of a rank in one iteration. ARRIVAL: after the first of its groups that makes the same calls, summed."""

    WAIT = "waiting"
    ARRIVAL = "late arrival"
    MEMORY = "memory"
    COMPUTE = "computing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The mesh as rows and columns: the outer axes make the rows, the inner ones the columns, in the mesh's order."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    ranks: Ints  # rows x columns

    def label_of_row(self, mesh: Mesh, row: int) -> str:
        place = mesh.coordinates(int(self.ranks[row, 0]))
        return " ".join(f"{name}={place[name]}" for name in self.rows)

    def label_of_column(self, mesh: Mesh, column: int) -> str:
        place = mesh.coordinates(int(self.ranks[0, column]))
        return " ".join(f"{name}={place[name]}" for name in self.columns)


def grid(mesh: Mesh) -> Grid:
    """Cut where rows and columns come closest to `ASPECT`."""
    order = mesh.order
    sizes = [mesh.size(name) for name in order]

    def distance(cut: int) -> float:
        rows, columns = math.prod(sizes[:cut]), math.prod(sizes[cut:])
        return abs(math.log(columns / rows / ASPECT))

    cut = min(range(len(order)), key=distance)
    ranks = np.arange(mesh.world, dtype=np.int64).reshape(math.prod(sizes[:cut]), -1)
    return Grid(rows=order[:cut], columns=order[cut:], ranks=ranks)


def values(timeline: Timeline, measure: Measure) -> Ints:
    """By rank; nanoseconds, or bytes for memory."""
    if measure is Measure.MEMORY:
        return timeline.graph.peak_bytes
    if measure is Measure.COMPUTE:
        return timeline.computed_ns
    if measure is Measure.WAIT:
        return sum(timeline.late_ns.values(), np.zeros_like(timeline.computed_ns))
    return _late(timeline)


def _late(timeline: Timeline) -> Ints:
    """Among those of a group that do the same, who waits least comes last: by as much as the first one waits longer.
    Stages of a pipeline differ in what they do, and by far more than any straggler."""
    graph = timeline.graph
    mesh, order = graph.mesh, graph.mesh.ranks()
    calls = np.array([_calls(rank_class.entries) for rank_class in graph.classes])
    calls_at = calls[graph.class_at].reshape(mesh.sizes)
    total = np.zeros_like(timeline.computed_ns)
    for name, late_ns in timeline.late_ns.items():
        channel = None if name == OTHER_STREAMS else parse(name, mesh)
        if isinstance(channel, Across):
            total[order.ravel()] += _behind(late_ns[order], calls_at, channel, mesh).ravel()
    return total


def _calls(entries: Entries) -> int:
    """A number that is equal for classes that make the same calls in the same order, whatever they compute and move:
    each recorded rank may be a class of its own."""
    chosen = entries.communicates | (entries.kind == Kind.WAIT)
    texts, channels = (np.array([hash(text) for text in table] or [0]) for table in (entries.texts, entries.channels))
    ops = np.where(entries.communicates, texts[entries.op], 0)
    told = (entries.kind, entries.blocking, ops, np.where(entries.communicates, channels[entries.channel], 0))
    return hash(b"".join(column[chosen].tobytes() for column in told))


def _behind(late_ns: Ints, calls_at: Ints, channel: Across, mesh: Mesh) -> Ints:
    """Shaped by the mesh."""
    axes = tuple(mesh.axis(axis) for axis in channel.axes)
    takes_part = np.ones(mesh.sizes, dtype=bool)
    if channel.members:
        chosen = np.isin(np.arange(mesh.sizes[axes[0]]), channel.members)
        takes_part &= chosen.reshape([-1 if axis == axes[0] else 1 for axis in range(len(mesh.sizes))])
    behind = np.zeros_like(late_ns)
    for number in np.unique(calls_at):
        alike = takes_part & (calls_at == number)
        longest = np.where(alike, late_ns, 0).max(axis=axes, keepdims=True)
        behind += np.where(alike, longest - late_ns, 0)
    return behind
