"""Where groups lie on the machines: which links they span, how many share them. From ranks to geometries, all at once.

Contention is this and nothing else: all groups of one channel are taken to communicate at the same time; those that
leave a node share its links evenly, those inside one are slower by a factor. All ranks of a node are taken to compute
at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismdbg.simulate.cluster.cluster import ClusterModel
from prismdbg.simulate.cluster.transfer import Geometry
from prismdbg.simulate.graph.channel import Across, Channel, Toward
from prismdbg.simulate.graph.cohorts import Bools, Layout
from prismdbg.simulate.graph.mesh import Ints, Mesh
from prismdbg.simulate.quantities import MILLION


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """`which`: in layout, size 1 along the axes of a group, the place in `geometries`. slower_ppm: of each of them."""

    which: Ints
    geometries: tuple[Geometry, ...]
    slower_ppm: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """`link_ppm`: in layout, how much longer what this rank takes part in takes."""

    cluster: ClusterModel
    layout: Layout
    ranks: Ints
    link_ppm: Ints

    @classmethod
    def of(cls, mesh: Mesh, layout: Layout, cluster: ClusterModel, link_ppm: Ints) -> Topology:
        """`link_ppm`: by rank."""
        ranks = layout.ranks(mesh)
        return cls(cluster, layout, ranks, link_ppm[ranks])

    def place(self, channel: Channel, users: Bools) -> Placed:
        """Of groups; of a point-to-point channel by sender."""
        if isinstance(channel, Across):
            return self._groups(channel, users)
        return self._pairs(channel, users)

    def _groups(self, channel: Across, users: Bools) -> Placed:
        axes = tuple(self.layout.axis(name) for name in channel.axes)
        members = np.sort(_rows(self.ranks, axes, channel.members), axis=1)
        is_used = _rows(users, axes, channel.members).all(axis=1)
        slower = _rows(self.link_ppm, axes, channel.members).max(axis=1)
        nodes = members // self.cluster.ranks_per_node
        count, local, most = _runs(nodes)
        sharing = self._sharing(nodes, is_used & (count > 1)) if self._limited else np.zeros_like(count)
        sizes = np.full_like(count, members.shape[1])
        tiers = self._tiers(members[:, 0], members[:, -1])
        beside = self._beside(nodes[:, 0], is_used & (count == 1) & (sizes > 1))
        uneven = np.where(most > local, most, 0)
        table = np.stack([sizes, tiers, count, local, sharing, beside, self._inside(members, nodes), uneven, slower])
        shape = [1 if axis in axes else size for axis, size in enumerate(self.layout.sizes)]
        return _placed(table, shape)

    def _pairs(self, channel: Toward, users: Bools) -> Placed:
        axis = self.layout.axis(channel.axis)
        peers = np.roll(self.ranks, -channel.offset, axis)
        slower = np.maximum(self.link_ppm, np.roll(self.link_ppm, -channel.offset, axis))
        node, other = self.ranks // self.cluster.ranks_per_node, peers // self.cluster.ranks_per_node
        leaves = users & (node != other)
        sharing = np.bincount(node[leaves], minlength=int(node.max()) + 1)[node] * leaves
        tiers = self._tiers(np.minimum(self.ranks, peers), np.maximum(self.ranks, peers))
        twos = np.full(self.layout.sizes, 2, dtype=np.int64)
        ones = np.ones_like(twos)
        zeros = np.zeros_like(twos)
        sharing = sharing * self._limited
        parts = (twos, tiers, 1 + (node != other), 1 + (node == other), sharing, ones, zeros, zeros, slower)
        return _placed(np.stack([part.ravel() for part in parts]), self.layout.sizes)

    @property
    def _limited(self) -> bool:
        return any(tier.node_rate for tier in self.cluster.tiers)

    def _beside(self, nodes: Ints, inside: Bools) -> Ints:
        """For each group inside a node: how many such groups the node has. 1 for all others."""
        if not self.cluster.shared_links.points:
            return np.ones_like(nodes)
        return np.where(inside, np.bincount(nodes[inside], minlength=int(nodes.max()) + 1)[nodes], 1)

    def _tiers(self, least: Ints, most: Ints) -> Ints:
        """The first tier in whose block both ends lie, and so all between them."""
        found = np.full(least.shape, len(self.cluster.tiers) - 1, dtype=np.int64)
        for number, tier in reversed(list(enumerate(self.cluster.tiers))):
            if tier.spans:
                found[least // tier.spans == most // tier.spans] = number
        return found

    def _inside(self, members: Ints, nodes: Ints) -> Ints:
        """For each group, of sorted members: the tier that holds those of one node, the farthest over its nodes."""
        first = np.ones(nodes.shape, dtype=bool)
        first[:, 1:] = nodes[:, 1:] != nodes[:, :-1]
        least = np.maximum.accumulate(np.where(first, members, 0), axis=1)
        farthest: Ints = self._tiers(least, members).max(axis=1)
        return farthest

    def _sharing(self, nodes: Ints, leaves: Bools) -> Ints:
        """For each group that leaves a node: the most such groups in any of its nodes."""
        at = np.where(leaves[:, None], nodes, -1)
        first = np.ones(at.shape, dtype=bool)
        first[:, 1:] = at[:, 1:] != at[:, :-1]
        first &= at >= 0
        groups_in = np.bincount(at[first], minlength=int(nodes.max()) + 1)
        return np.where(leaves, np.where(at >= 0, groups_in[at], 0).max(axis=1), 0)


def _rows(values: NDArray[Any], axes: tuple[int, ...], members: Sequence[int]) -> NDArray[Any]:
    """One row a group, one column a member."""
    if members:
        values = values.take(members, axes[0])
    last = np.moveaxis(values, axes, range(values.ndim - len(axes), values.ndim))
    kept = last.shape[: values.ndim - len(axes)]
    return last.reshape(int(np.prod(kept, dtype=np.int64)), -1)


def _runs(rows: Ints) -> tuple[Ints, Ints, Ints]:
    """How many different values each sorted row has, how often the rarest, and how often the most frequent."""
    size = rows.shape[1]
    starts = np.zeros(rows.shape, dtype=np.int64)
    starts[:, 1:] = np.where(rows[:, 1:] != rows[:, :-1], np.arange(1, size), 0)
    count = 1 + np.count_nonzero(starts, axis=1)
    lengths = np.arange(1, size + 1) - np.maximum.accumulate(starts, axis=1)
    ends = np.ones(rows.shape, dtype=bool)
    ends[:, :-1] = starts[:, 1:] > 0
    return count.astype(np.int64), np.where(ends, lengths, size).min(axis=1), lengths.max(axis=1)


def _placed(table: Ints, shape: Sequence[int]) -> Placed:
    if (table == table[:, :1]).all():
        rows, which = table[:, 0][None, :], np.zeros(table.shape[1], dtype=np.int64)
    else:
        rows, which = np.unique(table.T, axis=0, return_inverse=True)
    geometries = tuple(
        Geometry(
            members=members,
            tier=tier,
            nodes=nodes,
            local=local,
            sharing=sharing,
            beside=beside,
            inside=inside,
            most=most,
        )
        for members, tier, nodes, local, sharing, beside, inside, most, _ in rows.tolist()
    )
    return Placed(which.reshape(shape), geometries, tuple(rows[:, -1].tolist()))


def processors_ppm(cluster: ClusterModel, world: int) -> Ints:
    """By rank: how much longer it computes among all ranks of its node."""
    nodes = np.arange(world) // cluster.ranks_per_node
    return np.array([cluster.processors.ppm(int(count)) for count in np.bincount(nodes)], dtype=np.int64)[nodes]


def slowed_ns(duration_ns: int, *factors_ppm: int) -> int:
    """One factor after the other, each rounded down."""
    for ppm in factors_ppm:
        duration_ns = duration_ns * ppm // MILLION
    return duration_ns
