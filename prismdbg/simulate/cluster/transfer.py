"""How long a collective takes once its last member is there. Whole nanoseconds, rounded up; nothing else is modelled.

`size_bytes` is the larger of what a rank passes in and what it gets: S. With n members, latency L and rate B, the
ring's all-reduce takes 2(n-1) L + 2(n-1)/n S/B, its all-gather and reduce-scatter half of it; a tree takes L for each
of its levels and S/B each way; hierarchical is a ring in each node, one between nodes, and one in the node. Where a
group has k ranks in each of several nodes, it has k rings or trees, and B is the rate of k links, but at most the rate
inside a node, through which all of it goes, too. An all-to-all of k ranks in a node takes (n-1) L + (n-k)/n S/B, where
B is the rate of one of them; if the same link leads to its own node, all (n-1)/n S go over it.
Where times were measured they count, and the formula only says how they go on to other groups, sizes and shared links.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from prismdbg.simulate.cluster.cluster import Algorithm, ClusterModel, Tier
from prismdbg.simulate.cluster.curve import Curve, nearest
from prismdbg.simulate.quantities import MILLION

SECOND_NS = 10**9
ALL_TO_ALL = "all_to_all"
OF_ROOT = frozenset({"gather", "scatter"})  # on the root's links alone
HALVES = OF_ROOT | {"all_gather", "reduce_scatter", ALL_TO_ALL}
ROOTED = frozenset({"broadcast", "reduce"})
ALL_REDUCE = "all_reduce"
BARRIER = "barrier"
SEND = "send"
OPS = HALVES | ROOTED | {ALL_REDUCE, BARRIER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Where a group lies. `tier`: the nearest that holds all of it. `local`: fewest members in one node.

    `sharing`: how many groups of the same kind use the links of the busiest of its nodes.
    beside: of a group inside a node, how many groups of the same kind lie in that node, with itself.
    inside: the nearest tier that holds its members in any one node. most: most members in one node, 0 for `local`.
    """

    members: int
    tier: int
    nodes: int
    local: int
    sharing: int
    beside: int = 1
    inside: int = 0
    most: int = 0


def collective_ns(cluster: ClusterModel, op: str, size_bytes: int, where: Geometry) -> int:
    if where.members == 1:
        return 0
    return _alone_ns(cluster, op, size_bytes, where) * cluster.shared_links.ppm(where.beside) // MILLION


def _alone_ns(cluster: ClusterModel, op: str, size_bytes: int, where: Geometry) -> int:
    """Where no other group of the node communicates."""
    curves = cluster.tiers[where.tier].measured.get(op)
    if not curves:
        return formula_ns(cluster, op, size_bytes, where)
    curve = nearest(curves, where)
    there = _measured_at(cluster, curve, where)
    return _carried_ns(
        curve.time_ns(size_bytes),
        formula_ns(cluster, op, size_bytes, where),
        formula_ns(cluster.measured_on or cluster, op, curve.clamped(size_bytes), there),
    )


def _measured_at(cluster: ClusterModel, curve: Curve, where: Geometry) -> Geometry:
    """On the links of `where`, and alone on them; as neighbours, unless the group is the same."""
    alone = replace(where, sharing=min(where.sharing, 1))
    if curve.is_of(where):
        return alone
    nodes = curve.nodes or min(where.nodes, curve.members)
    local = max(curve.members // nodes, 1)
    return replace(
        alone, members=curve.members, nodes=nodes, local=local, most=0, inside=_of_neighbours(cluster, local)
    )


def _of_neighbours(cluster: ClusterModel, ranks: int) -> int:
    """The nearest tier that holds so many."""
    return next(number for number, tier in enumerate(cluster.tiers) if not tier.spans or tier.spans >= ranks)


def is_carried(cluster: ClusterModel, op: str, size_bytes: int, where: Geometry) -> bool:
    """Whether the times of the operation over these links were measured, but not in such a group and of such a size."""
    curves = cluster.tiers[where.tier].measured.get(op)
    if not curves or where.members == 1:
        return False
    curve = nearest(curves, where)
    is_known = curve.is_of(where) and (curve.nodes > 0 or where.nodes == 1)
    return not is_known or curve.clamped(size_bytes) != size_bytes


def has_unknown_links(cluster: ClusterModel, op: str, where: Geometry) -> bool:
    """Whether the time is that of as many links between nodes as the group has ranks in each, and nothing says that a
    node has so many."""
    tier, calibration = cluster.tiers[where.tier], cluster.calibration
    is_known = tier.node_rate > 0 or tier.rate == 0 or op in tier.measured
    is_calibrated = calibration is not None and calibration.nodes > 0 and calibration.ranks_of_a_node != 1
    return where.nodes > 1 and where.local > 1 and where.inside < where.tier and not is_known and not is_calibrated


def point_to_point_ns(cluster: ClusterModel, size_bytes: int, tier: int, sharing: int) -> int:
    """`sharing`: ranks of the node that send along this channel out of it; 0 inside a node."""
    link = cluster.tiers[tier]
    curves = link.measured.get(SEND)
    if not curves:
        return message_ns(link, size_bytes, sharing)
    measured_on = (cluster.measured_on or cluster).tiers[tier]
    there_ns = message_ns(measured_on, curves[0].clamped(size_bytes), min(sharing, 1))
    return _carried_ns(curves[0].time_ns(size_bytes), message_ns(link, size_bytes, sharing), there_ns)


def _carried_ns(measured_ns: float, formula_here_ns: int, formula_there_ns: int) -> int:
    """What was measured there, here: by the ratio of the formulas."""
    if formula_here_ns == formula_there_ns or not formula_there_ns:
        return round(measured_ns)
    return round(measured_ns * formula_here_ns / formula_there_ns)


def formula_ns(cluster: ClusterModel, op: str, size_bytes: int, where: Geometry) -> int:
    """Of a group of two or more, by the formula alone."""
    if op == BARRIER:
        return 2 * _levels(where.members) * cluster.tiers[where.tier].latency_ns
    if op == ALL_TO_ALL:
        return _all_to_all_ns(cluster, size_bytes, where)
    algorithm = cluster.algorithm(op, size_bytes)
    if op == ALL_REDUCE and algorithm is None:  # as libraries do: they estimate both
        return min(_tree_ns(cluster, op, size_bytes, where), _whole_ring_ns(cluster, op, size_bytes, where))
    if op in (ALL_REDUCE, *ROOTED) and algorithm is Algorithm.TREE:
        return _tree_ns(cluster, op, size_bytes, where)
    if op == ALL_REDUCE and algorithm is Algorithm.HIERARCHICAL and where.nodes > 1 and where.local > 1:
        return _hierarchical_ns(cluster, size_bytes, where)
    return _whole_ring_ns(cluster, op, size_bytes, where)


def message_ns(link: Tier, size_bytes: int, sharing: int) -> int:
    """By the formula alone."""
    return link.latency_ns + _bytes_ns(size_bytes, 1, _rate(link, sharing))


def _tree_ns(cluster: ClusterModel, op: str, size_bytes: int, where: Geometry) -> int:
    ways = 2 if op == ALL_REDUCE else 1
    latency_ns = _levels(where.members) * cluster.tiers[where.tier].latency_ns
    return ways * (latency_ns + _bytes_ns(size_bytes, 1, _rate_of_all(cluster, where)))


def _whole_ring_ns(cluster: ClusterModel, op: str, size_bytes: int, where: Geometry) -> int:
    tier = cluster.tiers[where.tier]
    rate = _rate(tier, _users(where)) if op in OF_ROOT else _rate_of_all(cluster, where)
    return _ring_ns(op, size_bytes, where.members, tier.latency_ns, rate)


def _ring_ns(op: str, size_bytes: int, members: int, latency_ns: int, rate: int) -> int:
    rounds = members - 1
    if op == ALL_REDUCE:
        return 2 * rounds * latency_ns + _bytes_ns(2 * rounds * size_bytes, members, rate)
    if op in ROOTED:
        return rounds * latency_ns + _bytes_ns(size_bytes, 1, rate)
    return rounds * latency_ns + _bytes_ns(rounds * size_bytes, members, rate)


def _all_to_all_ns(cluster: ClusterModel, size_bytes: int, where: Geometry) -> int:
    """What leaves a node and what stays there are under way at the same time, unless one link is for both. The links of
    a node take longest for the node with the most members: no other sends more.
    """
    tier, inside, n, most = cluster.tiers[where.tier], _inside(cluster, where), where.members, where.most or where.local
    own = n - 1 if inside is tier else n - where.local
    own_ns = _bytes_ns(own * size_bytes, n, tier.rate)
    of_node_ns = _bytes_ns(most * (n - most) * size_bytes, n, _share(tier, _users(where)))
    inside_ns = _bytes_ns((most - 1) * size_bytes, n, inside.rate)
    return (n - 1) * tier.latency_ns + max(own_ns, of_node_ns, inside_ns)


def _hierarchical_ns(cluster: ClusterModel, size_bytes: int, where: Geometry) -> int:
    inside, between = _inside(cluster, where), cluster.tiers[where.tier]
    part_bytes = -(-size_bytes // where.local)
    rate = _rate(between, where.sharing * where.local)
    half = _ring_ns("all_gather", size_bytes, where.local, inside.latency_ns, inside.rate)
    return 2 * half + _ring_ns(ALL_REDUCE, part_bytes, where.nodes, between.latency_ns, rate)


def _inside(cluster: ClusterModel, where: Geometry) -> Tier:
    """The links of the group's ranks in a node."""
    return cluster.tiers[where.tier if where.nodes == 1 else where.inside]


def _rate_of_all(cluster: ClusterModel, where: Geometry) -> int:
    """Of all rings or trees of a group together: one for each of its ranks in a node."""
    tier = cluster.tiers[where.tier]
    if where.nodes == 1:
        return tier.rate
    inside_rate = _inside(cluster, where).rate if where.local > 1 else 0
    return _least(where.local * tier.rate, _share(tier, where.sharing), inside_rate)


def _users(where: Geometry) -> int:
    """Groups that share the links of a node; 0 inside one."""
    return where.sharing if where.nodes > 1 else 0


def _rate(tier: Tier, sharing: int) -> int:
    """Of one rank, where so many share the node's links."""
    return _least(tier.rate, _share(tier, sharing))


def _share(tier: Tier, sharing: int) -> int:
    return max(tier.node_rate // sharing, 1) if tier.node_rate and sharing else 0


def _least(*rates: int) -> int:
    """A rate of 0 is no limit."""
    return min(filter(None, rates), default=0)


def _bytes_ns(size_bytes: int, parts: int, rate: int) -> int:
    """A rate of 0 is no limit."""
    return -(-size_bytes * SECOND_NS // (parts * rate)) if rate else 0


def _levels(members: int) -> int:
    return (members - 1).bit_length()
