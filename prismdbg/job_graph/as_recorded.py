"""The step that was recorded, rank by rank: every rank's own times, the transfers that were, all on one clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from prismdbg.capsule.log.events import RankLog
from prismdbg.errors import UsageError
from prismdbg.job_graph.recorded_step import RecordedStep, recorded_step, traced_in
from prismdbg.job_graph.slice_entries import Source, entries_of
from prismdbg.memory.traced_step import TracedStep
from prismdbg.model.collective import Collective
from prismdbg.rank_graph.node import Node
from prismdbg.settings.rank_config import RANK_MEMORY
from prismdbg.simulate.graph.entries import COMPUTE_STREAM, Entries, Kind
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.graph.origin import Origin, Truth
from prismdbg.simulate.graph.origin import Source as OriginSource

ONE_MACHINE_NS = 1_000_000  # clocks that were read so near each other are taken to be one

Key = tuple[object, ...]


def as_recorded(
    mesh: Mesh, logs: Mapping[int, RankLog], step: int, folders: Mapping[int, Path] | None = None
) -> JobGraph:
    """Every rank is a class of its own, with the operators and the memory that were traced in its folder.

    UsageError where a rank of the mesh has no log.
    """
    check_all_recorded(mesh, logs)
    steps = {rank: _whole(mesh, logs[rank], step) for rank in range(mesh.world)}
    clocks = common_clock(logs)
    meetings = Rendezvous({rank: (steps[rank], clocks[rank]) for rank in steps})
    begin_ns = min(recorded.begin_ns + clocks[rank] for rank, recorded in steps.items())
    by_rank: dict[int, Entries] = {}
    for rank, recorded in steps.items():
        traced = traced_in(folders[rank] / RANK_MEMORY, logs[rank], recorded) if folders is not None else None
        by_rank[rank] = _entries(mesh, recorded, clocks[rank], begin_ns, meetings, traced)
    graph = JobGraph.build(mesh, [(RankClass(name=f"rank {r}", entries=e), [r]) for r, e in by_rank.items()])
    truths = tuple(
        _truth(rank, recorded.end_ns + clocks[rank] - begin_ns, by_rank[rank]) for rank, recorded in steps.items()
    )
    return replace(graph, origin=Origin(source=OriginSource.RECORDED, truths=truths))


def check_all_recorded(mesh: Mesh, logs: Mapping[int, RankLog]) -> None:
    for rank in range(mesh.world):
        if rank not in logs:
            raise UsageError(
                f"{mesh.say(rank)} has no log, and --as-recorded needs one of every rank", hint="record all ranks"
            )


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
        raise UsageError(
            f"step {step} of {mesh.say(log.rank)} is not complete", hint="choose a step that all ranks completed"
        )
    return found


def _entries(
    mesh: Mesh,
    recorded: RecordedStep,
    clock_ns: int,
    begin_ns: int,
    meetings: Rendezvous,
    traced: TracedStep | None,
) -> Entries:
    """From the begin of the first rank's step: until its own begins, a rank is still in the step before."""
    offset_ns = recorded.graph.begins_ns + clock_ns
    nodes = tuple(meetings.ended(recorded.graph.rank, node) for node in recorded.graph.nodes)
    transfers = {n.record_id: t for n in nodes if (t := meetings.transfer_ns(recorded.graph.rank, n)) is not None}
    before_ns = recorded.begin_ns + clock_ns - begin_ns
    source = Source(
        before_ns=before_ns,
        from_ns=begin_ns - offset_ns + before_ns,
        until_ns=recorded.until_ns,
        transfers_ns=transfers,
        traced=traced,
    )
    return entries_of(replace(recorded.graph, nodes=nodes), mesh, source)


def common_clock(logs: Mapping[int, RankLog]) -> dict[int, int]:
    """What is added to a rank's times. Ranks of one machine share a clock; of several, the wall clocks count, which
    are no better than their synchronisation."""
    offsets = {rank: log.wall_offset_ns for rank, log in logs.items()}
    least = min(offsets.values())
    return {rank: 0 if offset - least < ONE_MACHINE_NS else offset - least for rank, offset in offsets.items()}


class Rendezvous:
    """Who met in which call. It is over when the last is there and the first is through; whoever needs longer, goes on
    later, and whoever was through before the last came, as the root of a broadcast may be, waited for nobody.
    """

    def __init__(self, steps: Mapping[int, tuple[RecordedStep, int]]) -> None:
        self._offsets = {rank: recorded.graph.begins_ns + clock for rank, (recorded, clock) in steps.items()}
        self._members: dict[Key, list[tuple[int, Node]]] = defaultdict(list)
        for rank, (recorded, _) in steps.items():
            for node in recorded.graph.nodes:
                key = meeting(rank, node, recorded.graph.groups[node.identity.group].ranks)
                self._members[key].append((rank, node))
        self._key_of = {(rank, n.record_id): key for key, members in self._members.items() for rank, n in members}

    def ended(self, rank: int, node: Node) -> Node:
        """The call as a simulation has it: over for all at once, or not waited for."""
        end_ns = self._end_ns(self._key_of[rank, node.record_id])
        if end_ns is None or node.completed_ns is None:
            return node
        end_ns -= self._offsets[rank]
        if node.completed_ns < end_ns:
            return replace(node, is_async=True, completed_ns=None, waited_ns=None)
        return replace(node, completed_ns=end_ns)

    def transfer_ns(self, rank: int, node: Node) -> int | None:
        key = self._key_of[rank, node.record_id]
        end_ns = self._end_ns(key)
        return None if end_ns is None else end_ns - self._last_came_ns(key)

    def _last_came_ns(self, key: Key) -> int:
        return max(node.issued_ns + self._offsets[rank] for rank, node in self._members[key])

    def _end_ns(self, key: Key) -> int | None:
        done = [n.completed_ns + self._offsets[rank] for rank, n in self._members[key] if n.completed_ns is not None]
        return max(min(done), self._last_came_ns(key)) if done else None


def meeting(rank: int, call: Node | Collective, ranks: tuple[int, ...]) -> Key:
    """The same for all that take part; of a message for its sender and its receiver."""
    identity = call.identity
    if not call.is_p2p:
        return (ranks, identity.group, identity.seq)
    number = peer_number(call)
    peer = ranks[number] if 0 <= number < len(ranks) else -1
    source, target = (rank, peer) if call.op == "send" else (peer, rank)
    return (ranks, identity.group, source, target, identity.tag, identity.seq)


def peer_number(message: Node | Collective) -> int:
    """In the group; -1 where it is not known."""
    return message.source_rank if message.identity.peer < 0 else message.identity.peer
