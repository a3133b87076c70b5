"""All ranks of a simulated job as a map by mesh coordinates: how long each waits, how late it comes, what it holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from prismdbg.predict.channel import Across, parse
from prismdbg.predict.mesh import Ints, Mesh
from prismdbg.predict.timeline import OTHER_STREAMS, Timeline

ASPECT = 8.0  # columns to a row that look best


class Measure(StrEnum):
    """Of a rank in one iteration. ARRIVAL: how much later than the first of its groups it comes, summed."""

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
    """Who waits least of a group comes last: by as much as the first one waits longer."""
    mesh = timeline.graph.mesh
    order = mesh.ranks()
    total = np.zeros_like(timeline.computed_ns)
    for name, late_ns in timeline.late_ns.items():
        channel = None if name == OTHER_STREAMS else parse(name, mesh)
        if not isinstance(channel, Across):
            continue
        axes = tuple(mesh.axis(axis) for axis in channel.axes)
        shaped = late_ns[order]
        if channel.members:
            chosen = list(channel.members)
            part = shaped.take(chosen, axes[0])
            found = np.zeros_like(shaped)
            index = [slice(None)] * shaped.ndim
            for place, coordinate in enumerate(chosen):
                index[axes[0]] = slice(coordinate, coordinate + 1)
                one = part.take([place], axes[0])
                found[tuple(index)] = part.max(axis=axes[0], keepdims=True) - one
        else:
            found = shaped.max(axis=axes, keepdims=True) - shaped
        by_rank = np.empty_like(total)
        by_rank[order.ravel()] = found.ravel()
        total += by_rank
    return total
