"""How long a collective takes once its last member is there. Whole nanoseconds, rounded up; nothing else is modelled.

`size_bytes` is the larger of what a rank passes in and what it gets: S. With n members, latency L and rate B, the
ring's all-reduce takes 2(n-1) L + 2(n-1)/n S/B, its all-gather, reduce-scatter and all-to-all half of it; a tree takes
L for each of its levels and S/B each way; hierarchical is a ring in each node, one between nodes, and one in the node.
Where times were measured they count, and the formula only says how they go on to other groups, sizes and shared links.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from prismdbg.simulate.cluster.cluster import Algorithm, ClusterModel, Tier
from prismdbg.simulate.cluster.curve import nearest
from prismdbg.simulate.quantities import MILLION

SECOND_NS = 10**9
HALVES = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})
ROOTED = frozenset({"broadcast", "reduce"})
ALL_REDUCE = "all_reduce"
BARRIER = "barrier"
SEND = "send"
OPS = HALVES | ROOTED | {ALL_REDUCE, BARRIER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Where a group lies. `tier`: the nearest that holds all of it. `local`: most members in one node.

    `sharing`: how many groups of the same kind use the links of the busiest of its nodes.
    beside: of a group inside a node, how many groups of the same kind lie in that node, with itself.
    """

    members: int
    tier: int
    nodes: int
    local: int
    sharing: int
    beside: int = 1


def collective_ns(cluster: ClusterModel, op: str, size_bytes: int, where: Geometry) -> int:
    if where.members == 1:
        return 0
    return _alone_ns(cluster, op, size_bytes, where) * cluster.shared_links.ppm(where.beside) // MILLION


def _alone_ns(cluster: ClusterModel, op: str, size_bytes: int, where: Geometry) -> int:
    """Where no other group of the node communicates."""
    curves = cluster.tiers[where.tier].measured.get(op)
    if not curves:
        return formula_ns(cluster, op, size_bytes, where)
    curve = nearest(curves, where.members)
    known_bytes = curve.clamped(size_bytes)
    measured_ns = curve.time_ns(size_bytes)
    if known_bytes == size_bytes and curve.members == where.members and where.sharing <= 1:
        return round(measured_ns)
    there = replace(where, members=curve.members, local=min(where.local, curve.members), sharing=min(where.sharing, 1))
    return _carried_ns(
        measured_ns, formula_ns(cluster, op, size_bytes, where), formula_ns(cluster, op, known_bytes, there)
    )


def point_to_point_ns(cluster: ClusterModel, size_bytes: int, tier: int, sharing: int) -> int:
    """`sharing`: ranks of the node that send along this channel out of it; 0 inside a node."""
    link = cluster.tiers[tier]
    curves = link.measured.get(SEND)
    if not curves:
        return message_ns(link, size_bytes, sharing)
    known_bytes = curves[0].clamped(size_bytes)
    measured_ns = curves[0].time_ns(size_bytes)
    if known_bytes == size_bytes and sharing <= 1:
        return round(measured_ns)
    there_ns = message_ns(link, known_bytes, min(sharing, 1))
    return _carried_ns(measured_ns, message_ns(link, size_bytes, sharing), there_ns)


def _carried_ns(measured_ns: float, formula_here_ns: int, formula_there_ns: int) -> int:
    """What was measured there, here: by the ratio of the formulas."""
    return round(measured_ns * formula_here_ns / formula_there_ns) if formula_there_ns else round(measured_ns)


def formula_ns(cluster: ClusterModel, op: str, size_bytes: int, where: Geometry) -> int:
    """Of a group of two or more, by the formula alone."""
    tier = cluster.tiers[where.tier]
    rate = _rate(tier, where.sharing if where.nodes > 1 else 0)
    if op == BARRIER:
        return 2 * _levels(where.members) * tier.latency_ns
    algorithm = cluster.algorithm(op, size_bytes)
    if algorithm is Algorithm.TREE and op in (ALL_REDUCE, *ROOTED):
        ways = 2 if op == ALL_REDUCE else 1
        return ways * (_levels(where.members) * tier.latency_ns + _bytes_ns(size_bytes, 1, rate))
    if algorithm is Algorithm.HIERARCHICAL and op == ALL_REDUCE and where.nodes > 1 and where.local > 1:
        return _hierarchical_ns(cluster, size_bytes, where)
    return _ring_ns(op, size_bytes, where.members, tier.latency_ns, rate)


def message_ns(link: Tier, size_bytes: int, sharing: int) -> int:
    """By the formula alone."""
    return link.latency_ns + _bytes_ns(size_bytes, 1, _rate(link, sharing))


def _ring_ns(op: str, size_bytes: int, members: int, latency_ns: int, rate: int) -> int:
    rounds = members - 1
    if op == ALL_REDUCE:
        return 2 * rounds * latency_ns + _bytes_ns(2 * rounds * size_bytes, members, rate)
    if op in ROOTED:
        return rounds * latency_ns + _bytes_ns(size_bytes, 1, rate)
    return rounds * latency_ns + _bytes_ns(rounds * size_bytes, members, rate)


def _hierarchical_ns(cluster: ClusterModel, size_bytes: int, where: Geometry) -> int:
    inside, between = cluster.tiers[0], cluster.tiers[where.tier]
    part_bytes = -(-size_bytes // where.local)
    rate = _rate(between, where.sharing * where.local)
    half = _ring_ns("all_gather", size_bytes, where.local, inside.latency_ns, inside.rate)
    return 2 * half + _ring_ns(ALL_REDUCE, part_bytes, where.nodes, between.latency_ns, rate)


def _rate(tier: Tier, sharing: int) -> int:
    """Of one rank, where so many share the node's links."""
    if not tier.node_rate or not sharing:
        return tier.rate
    share = max(tier.node_rate // sharing, 1)
    return min(tier.rate, share) if tier.rate else share


def _bytes_ns(size_bytes: int, parts: int, rate: int) -> int:
    """A rate of 0 is no limit."""
    return -(-size_bytes * SECOND_NS // (parts * rate)) if rate else 0


def _levels(members: int) -> int:
    return (members - 1).bit_length()
