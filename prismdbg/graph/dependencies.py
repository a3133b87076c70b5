"""What had to happen before what in a rank's slice: on the rank itself, and on the others. Derived, never stored."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum

from prismdbg.graph.node import Node
from prismdbg.graph.roles import FROM_ROOT, TO_ROOT, global_rank
from prismdbg.graph.slice import GraphSlice


class DependencyKind(StrEnum):
    PROGRAM = "program"  # `before` was issued first, by the same thread
    RECEIVED = "received"  # `before` had completed, so what it brought may be in what `after` sends


@dataclass(frozen=True, slots=True)
class Dependency:
    """`before` and `after` are positions in `GraphSlice.nodes`."""

    before: int
    after: int
    kind: DependencyKind


def dependencies(graph: GraphSlice) -> list[Dependency]:
    """By `after`, then `before`; what follows from others of these is left out."""
    found: list[Dependency] = []
    for positions in _by_thread(graph.nodes).values():
        found += _on_one_thread(graph.nodes, positions)
    return sorted(found, key=lambda d: (d.after, d.before, d.kind))


def needed_ranks(graph: GraphSlice, node: Node) -> tuple[int, ...]:
    """Global ranks that must have called the same collective before this one can complete; itself not among them.

    A receive from any source needs whoever it came from, or nobody known. Without the group's description: none.
    """
    group = graph.groups[node.identity.group]
    if node.is_p2p:
        named = node.source_rank if node.op == "recv_any_source_" else node.identity.peer
        peer = global_rank(group, named)
        return () if peer is None else (peer,)
    root = global_rank(group, node.root)
    others = tuple(rank for rank in group.ranks if rank != graph.rank)
    if node.op in FROM_ROOT:
        return () if root in (graph.rank, None) else (root,)
    if node.op in TO_ROOT:
        return others if root == graph.rank else ()
    return others


def _by_thread(nodes: tuple[Node, ...]) -> dict[int, list[int]]:
    threads: dict[int, list[int]] = defaultdict(list)
    for position, node in enumerate(nodes):
        threads[node.thread].append(position)
    return threads


def _on_one_thread(nodes: tuple[Node, ...], positions: list[int]) -> list[Dependency]:
    """Each completion is tied to the first node that was issued after it: the rest follows by program order."""
    brought = sorted(
        (node.completed_ns, position)
        for position, node in enumerate(nodes)
        if node.completed_ns is not None and node.received_bytes and not node.has_failed
    )
    found: list[Dependency] = []
    at = 0
    for before, after in zip([None, *positions], positions, strict=False):
        if before is not None:
            found.append(Dependency(before, after, DependencyKind.PROGRAM))
        while at < len(brought) and brought[at][0] <= nodes[after].issued_ns:
            if brought[at][1] != after:
                found.append(Dependency(brought[at][1], after, DependencyKind.RECEIVED))
            at += 1
    return found
