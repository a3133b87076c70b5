"""The step that was recorded, rank by rank: every rank's own times, the transfers that were, all on one clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from prismdbg.capsule.log_reader import RankLog
from prismdbg.errors import UsageError
from prismdbg.graph.node import Node
from prismdbg.predict.entries import COMPUTE_STREAM, Entries, Kind
from prismdbg.predict.job_graph import JobGraph, RankClass
from prismdbg.predict.mesh import Mesh
from prismdbg.predict.origin import Origin, Truth
from prismdbg.predict.origin import Source as OriginSource
from prismdbg.workflows.recorded_step import RecordedStep, recorded_step
from prismdbg.workflows.slice_entries import Source, entries_of

ONE_MACHINE_NS = 1_000_000  # clocks that were read so near each other are taken to be one

Key = tuple[object, ...]


def as_recorded(mesh: Mesh, logs: Mapping[int, RankLog], step: int) -> JobGraph:
    """Every rank is a class of its own. UsageError where a rank of the mesh has no log."""
    for rank in range(mesh.world):
        if rank not in logs:
            raise UsageError(
                f"{mesh.say(rank)} has no log, and --as-recorded needs one of every rank", hint="record all ranks"
            )
    steps = {rank: _whole(mesh, logs[rank], step) for rank in range(mesh.world)}
    clocks = common_clock(logs)
    meetings = Meetings({rank: (steps[rank], clocks[rank]) for rank in steps})
    begin_ns = min(recorded.begin_ns + clocks[rank] for rank, recorded in steps.items())
    by_rank = {rank: _entries(mesh, steps[rank], clocks[rank], begin_ns, meetings) for rank in steps}
    graph = JobGraph.build(mesh, [(RankClass(name=f"rank {r}", entries=e), [r]) for r, e in by_rank.items()])
    truths = tuple(
        _truth(rank, recorded.end_ns + clocks[rank] - begin_ns, by_rank[rank]) for rank, recorded in steps.items()
    )
    return replace(graph, origin=Origin(source=OriginSource.RECORDED, truths=truths))


def _truth(rank: int, iteration_ns: int, entries: Entries) -> Truth:
    """Of the main thread, which ended so long after the first rank began."""
    own = (entries.kind == Kind.COMPUTE) & (entries.stream == COMPUTE_STREAM)
    computed_ns = int(entries.duration_ns[own].sum())
    return Truth(
        rank=rank, iteration_ns=iteration_ns, computed_ns=computed_ns, blocked_ns=max(iteration_ns - computed_ns, 0)
    )


def _whole(mesh: Mesh, log: RankLog, step: int) -> RecordedStep:
    found = recorded_step(log, step)
    if found is None or not found.end_ns:
        raise UsageError(f"step {step} of {mesh.say(log.rank)} is not whole", hint="choose a step that all ranks ended")
    return found


def _entries(mesh: Mesh, recorded: RecordedStep, clock_ns: int, begin_ns: int, meetings: Meetings) -> Entries:
    """From the begin of the first rank's step: until its own begins, a rank is still in the step before."""
    offset_ns = recorded.graph.begins_ns + clock_ns
    nodes = tuple(meetings.ended(recorded.graph.rank, node) for node in recorded.graph.nodes)
    transfers = {n.record_id: t for n in nodes if (t := meetings.transfer_ns(recorded.graph.rank, n)) is not None}
    source = Source(from_ns=begin_ns - offset_ns, until_ns=recorded.until_ns, transfers_ns=transfers)
    return entries_of(replace(recorded.graph, nodes=nodes), mesh, source)


def common_clock(logs: Mapping[int, RankLog]) -> dict[int, int]:
    """What is added to a rank's times. Ranks of one machine share a clock; of several, the wall clocks count, which
    are no better than their synchronisation."""
    offsets = {rank: log.wall_offset_ns for rank, log in logs.items()}
    least = min(offsets.values())
    return {rank: 0 if offset - least < ONE_MACHINE_NS else offset - least for rank, offset in offsets.items()}


class Meetings:
    """Who met in which call: when the last was there, and when it was over for the last. Times on the common clock.

    A call starts when the ones before it on its channel are over: what is left until its end is the transfer.
    """

    def __init__(self, steps: Mapping[int, tuple[RecordedStep, int]]) -> None:
        self._offsets = {rank: recorded.graph.begins_ns + clock for rank, (recorded, clock) in steps.items()}
        self._members: dict[Key, list[tuple[int, Node]]] = defaultdict(list)
        for rank, (recorded, _) in steps.items():
            for node in recorded.graph.nodes:
                key = _meeting(rank, node, recorded.graph.groups[node.identity.group].ranks)
                self._members[key].append((rank, node))
        self._key_of = {(rank, n.record_id): key for key, members in self._members.items() for rank, n in members}
        self._ended = {key: end for key, members in self._members.items() if (end := self._end(members)) is not None}
        self._transfers: dict[Key, int] = {}
        self._over: dict[tuple[int, str], int] = {}  # of each rank's groups: the end of the call before
        for key in sorted(self._ended, key=self._ended.__getitem__):
            arrived = [self._arrived(rank, node, self._ended[key]) for rank, node in self._members[key]]
            self._transfers[key] = max(self._ended[key] - max(arrived), 0)

    def _end(self, members: Sequence[tuple[int, Node]]) -> int | None:
        return max((n.completed_ns + self._offsets[r] for r, n in members if n.completed_ns is not None), default=None)

    def _arrived(self, rank: int, node: Node, end_ns: int) -> int:
        issued_ns = node.issued_ns + self._offsets[rank]
        if node.is_p2p:
            return issued_ns
        before_ns = self._over.get((rank, node.identity.group), issued_ns)
        self._over[rank, node.identity.group] = end_ns
        return max(issued_ns, before_ns)

    def ended(self, rank: int, node: Node) -> Node:
        """Over for all at once, as a simulation has it; a message is on its way without its sender."""
        if node.op == "send":
            return replace(node, completed_ns=None, waited_ns=None)
        end_ns = self._ended.get(self._key_of[rank, node.record_id])
        return node if end_ns is None else replace(node, completed_ns=end_ns - self._offsets[rank])

    def transfer_ns(self, rank: int, node: Node) -> int | None:
        return self._transfers.get(self._key_of[rank, node.record_id])


def _meeting(rank: int, node: Node, ranks: tuple[int, ...]) -> Key:
    """The same for all that take part; of a message for its sender and its receiver."""
    identity = node.identity
    if not node.is_p2p:
        return (ranks, identity.group, identity.seq)
    number = node.source_rank if identity.peer < 0 else identity.peer
    peer = ranks[number] if 0 <= number < len(ranks) else -1
    source, target = (rank, peer) if node.op == "send" else (peer, rank)
    return (ranks, identity.group, source, target, identity.tag, identity.seq)
