"""The simulation once more, one event of one rank after the other: slow, and meant to be obviously right.

Nothing is shared with the fast one but the entries, the mesh's coordinates and the transfer formulas.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from prismdbg.simulate.cluster.cluster import ClusterModel
from prismdbg.simulate.cluster.transfer import Geometry, collective_ns, point_to_point_ns
from prismdbg.simulate.engine.changes import Changes
from prismdbg.simulate.graph.channel import Across, Toward, parse
from prismdbg.simulate.graph.entries import FREE, MODELLED_NS, Entries, Kind
from prismdbg.simulate.graph.job_graph import JobGraph, vector_by_rank

MILLION = 10**6


@dataclass
class Call:
    """One communication of some ranks: who has come, who still has to."""

    members: tuple[int, ...]
    came: dict[int, tuple[int, int]] = field(default_factory=dict)  # rank -> entry, time


@dataclass
class Rank:
    """`queues`: tasks of each stream, in program order. An entry without a stream has one of its own."""

    entries: Entries
    queues: dict[object, deque[tuple[str, int]]] = field(default_factory=lambda: defaultdict(deque))
    issued: set[int] = field(default_factory=set)
    arrived: set[int] = field(default_factory=set)
    start: dict[int, int] = field(default_factory=dict)
    end: dict[int, int] = field(default_factory=dict)
    stood_since: dict[object, int] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    late: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class SlowSimulation:
    def __init__(self, graph: JobGraph, cluster: ClusterModel, changes: Changes) -> None:
        self.graph, self.cluster, self.changes = graph, cluster, changes
        self.mesh = graph.mesh
        self.slower = vector_by_rank(graph.mesh, graph.compute_ppm_at).tolist()
        self.ranks = [Rank(graph.class_of(rank).entries) for rank in range(self.mesh.world)]
        self.begins = [
            sum(d.delay_ns for d in changes.delays if d.rank == number and d.entry is None)
            for number in range(self.mesh.world)
        ]
        self.calls: dict[object, Call] = {}
        self.turns: dict[tuple[int, int], int] = {}
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.made = 0
        self.now = 0
        for number, rank in enumerate(self.ranks):
            self._fill(number, rank)

    def run(self) -> int:
        for number, rank in enumerate(self.ranks):
            for stream in {0, *rank.queues}:
                self._later(self.begins[number], number, stream)
        while self.events:
            self.now, _, action = heapq.heappop(self.events)
            action()
        assert not any(queue for rank in self.ranks for queue in rank.queues.values()), "a deadlock"
        return self.now

    def _fill(self, number: int, rank: Rank) -> None:
        counts: dict[object, int] = defaultdict(int)
        for e in range(len(rank.entries)):
            kind, stream = Kind(int(rank.entries.kind[e])), int(rank.entries.stream[e])
            if kind == Kind.COMPUTE:
                rank.queues[stream].append(("compute", e))
            elif kind == Kind.WAIT:
                rank.queues[stream].append(("wait", e))
            elif kind != Kind.MEMORY:
                lane = (parse(self._channel(rank, e), self.mesh), kind)
                self.turns[number, e] = counts[lane]
                counts[lane] += 1
                issuer = int(rank.entries.issuer[e])
                if stream == issuer:
                    rank.issued.add(e)
                else:
                    rank.queues[issuer].append(("issue", e))
                rank.queues[("own", e) if stream == FREE else stream].append(("communicate", e))
                if rank.entries.blocking[e] and stream != issuer:
                    rank.queues[issuer].append(("await", e))

    def _channel(self, rank: Rank, e: int) -> str:
        return str(rank.entries.channels[rank.entries.channel[e]])

    def _later(self, time: int, number: int, stream: object) -> None:
        self.made += 1
        heapq.heappush(self.events, (time, self.made, lambda: self._go(number, stream)))

    def _go(self, number: int, stream: object) -> None:
        """Does what the stream can do now; whoever makes more possible calls again."""
        rank = self.ranks[number]
        queue = rank.queues[stream] if self.now >= self.begins[number] else None
        while queue:
            task, e = queue[0]
            if task == "compute":
                if e not in rank.start:
                    rank.start[e] = self.now
                    rank.end[e] = self.now + self._duration(number, e)
                    self._later(rank.end[e], number, stream)
                    self._wake_all(number, rank.end[e])
                if rank.end[e] > self.now:
                    return
            elif task == "issue":
                rank.issued.add(e)
                self._wake_all(number, self.now)
            elif task == "communicate":
                if e not in rank.issued:
                    return
                if e not in rank.arrived:
                    rank.arrived.add(e)
                    rank.start[e] = self.now
                    self._arrive(number, e)
                if rank.end.get(e, self.now + 1) > self.now:
                    return
                self._account(rank, number, stream, e, rank.start[e])
            else:
                target = e if task == "await" else int(rank.entries.target[e])
                rank.stood_since.setdefault(stream, self.now)
                if task == "wait":
                    rank.start.setdefault(e, self.now)
                if rank.end.get(target, self.now + 1) > self.now:
                    return
                self._account(rank, number, stream, target, rank.stood_since.pop(stream))
                if task == "wait":
                    rank.end[e] = self.now
            queue.popleft()

    def _wake_all(self, number: int, time: int) -> None:
        for stream in self.ranks[number].queues:
            self._later(time, number, stream)

    def _account(self, rank: Rank, number: int, stream: object, e: int, since: int) -> None:
        if stream != 0:
            return
        waited = self.now - since
        talks = Kind.COLLECTIVE <= rank.entries.kind[e] <= Kind.RECV
        shown = min(waited, self._transfer(number, e)) if talks else 0
        name = self._channel(rank, e) if talks else "other streams"
        rank.shown[name] += shown
        rank.late[name] += waited - shown

    def _duration(self, number: int, e: int) -> int:
        entries = self.ranks[number].entries
        kernel = int(entries.duration_ns[e])
        factor = (
            self.cluster.compute_ppm.get(number, MILLION) * self.changes.compute_ppm.get(number, MILLION) // MILLION
        )
        if not self.graph.origin.has_contention:
            here = sum(self._node(rank) == self._node(number) for rank in range(self.mesh.world))
            factor = factor * self.cluster.processors.ppm(here) // MILLION
        ppm = self.slower[number] * factor // MILLION
        return kernel * ppm // MILLION + sum(
            d.delay_ns for d in self.changes.delays if d.rank == number and d.entry == e
        )

    # who meets

    def _arrive(self, number: int, e: int) -> None:
        rank = self.ranks[number]
        kind = Kind(int(rank.entries.kind[e]))
        channel = parse(self._channel(rank, e), self.mesh)
        turn = self.turns[number, e]
        if isinstance(channel, Across):
            members = self._group(number, channel)
            call = self.calls.setdefault((channel, members, turn), Call(members))
            call.came[number] = (e, self.now)
            if len(call.came) == len(members):
                end = self.now + max(self._transfer(r, entry) for r, (entry, _) in call.came.items())
                for r, (entry, _) in call.came.items():
                    self._finish(r, entry, end)
            return
        peer = self._peer(number, channel)
        pair = (number, peer) if kind == Kind.SEND else (peer, number)
        forward = channel if kind == Kind.SEND else channel.back(self.mesh)
        call = self.calls.setdefault((forward, pair, turn), Call(pair))
        call.came[number] = (e, self.now)
        self._pair(call, *pair, is_sender=kind == Kind.SEND)

    def _pair(self, call: Call, sender: int, receiver: int, *, is_sender: bool) -> None:
        """A send to oneself is not possible, so that two ranks came where two entries are there."""
        any_rank, (any_entry, _) = next(iter(call.came.items()))
        eager = 0 < self.cluster.eager_bytes >= int(self.ranks[any_rank].entries.size_bytes[any_entry])
        if eager and is_sender:
            e, time = call.came[sender]
            self._finish(sender, e, time + self._transfer(sender, e))
        if len(call.came) < 2:
            return
        (s, sent), (r, asked) = call.came[sender], call.came[receiver]
        if eager:
            self._finish(receiver, r, max(asked, sent + self._transfer(receiver, r)))
            return
        end = self.now + max(self._transfer(sender, s), self._transfer(receiver, r))
        self._finish(sender, s, end)
        self._finish(receiver, r, end)

    def _finish(self, number: int, e: int, end: int) -> None:
        self.ranks[number].end[e] = end
        self._wake_all(number, end)

    def _group(self, number: int, channel: Across) -> tuple[int, ...]:
        own = self.mesh.coordinates(number)
        found = []
        for other in range(self.mesh.world):
            there = self.mesh.coordinates(other)
            same = all(there[name] == own[name] for name in self.mesh.names if name not in channel.axes)
            if same and (not channel.members or there[channel.axes[0]] in channel.members):
                found.append(other)
        return tuple(found)

    def _peer(self, number: int, channel: Toward) -> int:
        place = self.mesh.coordinates(number)
        place[channel.axis] = (place[channel.axis] + channel.offset) % self.mesh.size(channel.axis)
        return self.mesh.rank(**place)

    # how long it takes

    def _transfer(self, number: int, e: int) -> int:
        entries = self.ranks[number].entries
        channel = parse(self._channel(self.ranks[number], e), self.mesh)
        size_bytes, given = int(entries.size_bytes[e]), int(entries.duration_ns[e])
        kind = Kind(int(entries.kind[e]))
        if isinstance(channel, Across):
            members = self._group(number, channel)
            modelled = collective_ns(
                self.cluster, entries.texts[entries.op[e]], size_bytes, self._geometry(members, channel)
            )
        else:
            forward = channel if kind == Kind.SEND else channel.back(self.mesh)
            peer = self._peer(number, channel)
            members = (number, peer)
            sender = number if kind == Kind.SEND else peer
            modelled = point_to_point_ns(self.cluster, size_bytes, self._tier(members), self._leaving(sender, forward))
        taken = modelled if given == MODELLED_NS else given
        slow = max(
            self.cluster.link_ppm.get(r, MILLION) * self.changes.link_ppm.get(r, MILLION) // MILLION for r in members
        )
        taken = taken * slow // MILLION
        is_async = not entries.blocking[e] and entries.stream[e] != entries.issuer[e]
        if kind != Kind.COLLECTIVE or not is_async or given != MODELLED_NS:
            return taken
        slower_ppm = self.cluster.transfer_overlap_ppm
        beside = min(self._computed_until_wait(entries, e), taken * slower_ppm // MILLION)
        return taken + beside - beside * MILLION // slower_ppm  # what was done meanwhile took longer

    def _computed_until_wait(self, entries: Entries, call: int) -> int:
        found = 0
        for e in range(call, len(entries)):
            if entries.kind[e] == Kind.WAIT and entries.target[e] == call:
                break
            if entries.kind[e] == Kind.COMPUTE and entries.stream[e] == entries.issuer[call]:
                found += int(entries.duration_ns[e])
        return found

    def _node(self, rank: int) -> int:
        return rank // self.cluster.ranks_per_node

    def _tier(self, members: tuple[int, ...]) -> int:
        for number, tier in enumerate(self.cluster.tiers):
            if not tier.spans or len({rank // tier.spans for rank in members}) == 1:
                return number
        raise AssertionError("the last tier spans the job")

    def _geometry(self, members: tuple[int, ...], channel: Across) -> Geometry:
        nodes = [self._node(rank) for rank in members]
        sharing, beside = 0, 1
        users = [r for r in range(self.mesh.world) if self._uses(r, channel, Kind.COLLECTIVE)]
        groups = {self._group(r, channel) for r in users}
        if len(set(nodes)) == 1 and len(nodes) > 1:
            beside = sum({self._node(r) for r in g} == set(nodes) for g in groups)
        if len(set(nodes)) > 1 and any(tier.node_rate for tier in self.cluster.tiers):
            leaving = [g for g in groups if len({self._node(r) for r in g}) > 1]
            sharing = max(sum(any(self._node(r) == n for r in g) for g in leaving) for n in set(nodes))
        parts = [tuple(r for r in members if self._node(r) == n) for n in set(nodes)]
        counts = [len(part) for part in parts]
        return Geometry(
            members=len(members),
            tier=self._tier(members),
            nodes=len(parts),
            local=min(counts),
            sharing=sharing,
            beside=beside,
            inside=max(self._tier(part) for part in parts),
            most=max(counts) if len(set(counts)) > 1 else 0,
        )

    def _leaving(self, sender: int, channel: Toward) -> int:
        """Ranks of the sender's node that send out of it on this channel."""
        peers = {r: self._peer(r, channel) for r in range(self.mesh.world) if self._uses(r, channel, Kind.SEND)}
        out = [r for r, peer in peers.items() if self._node(r) != self._node(peer)]
        return sum(self._node(r) == self._node(sender) for r in out) if sender in out else 0

    def _uses(self, number: int, channel: Across | Toward, kind: Kind) -> bool:
        entries = self.ranks[number].entries
        return any(
            entries.kind[e] == kind and parse(self._channel(self.ranks[number], e), self.mesh) == channel
            for e in range(len(entries))
        )
