"""The simulation of whole cohorts against one of single events: equal to the nanosecond on random jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prismdbg.simulate.cluster.cluster import Algorithm, Choice, ClusterModel, Tier
from prismdbg.simulate.cluster.curve import Curve
from prismdbg.simulate.cluster.slowdown import Slowdown
from prismdbg.simulate.engine.changes import Changes, Delay
from prismdbg.simulate.engine.critical_path import critical_path
from prismdbg.simulate.engine.engine import Keep
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.entries import Kind
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh
from tests.unit.slow_simulation import SlowSimulation

OPS = ("all_reduce", "all_gather", "broadcast", "all_to_all", "barrier")


@dataclass
class Writing:
    """A class while its program is drawn. `open`: asynchronous entries nobody has waited for yet."""

    ranks: list[int]
    writer: EntryWriter = field(default_factory=EntryWriter)
    open: list[int] = field(default_factory=list)


class JobDraw:
    """Everything is appended to all who take part at once, so that some order serves all: no deadlock."""

    def __init__(self, data: st.DataObject) -> None:
        self.draw = data.draw
        sizes = self.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3).filter(lambda s: np.prod(s) <= 16))
        names = ("pp", "dp", "tp")[: len(sizes)]
        order = self.draw(st.permutations(names))
        text = ",".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True))
        self.mesh = Mesh.parse(text, order=",".join(order))
        self.classes = self._classes()
        for _ in range(self.draw(st.integers(1, 14))):
            self.draw(
                st.sampled_from([self.compute, self.compute, self.collective, self.collective, self.p2p, self.wait])
            )()

    def graph(self) -> JobGraph:
        ppm = self.draw(
            st.one_of(
                st.none(), st.lists(st.integers(900_000, 1_300_000), min_size=self.mesh.world, max_size=self.mesh.world)
            )
        )
        named = [(RankClass(name=str(i), entries=c.writer.done()), c.ranks) for i, c in enumerate(self.classes)]
        return JobGraph.build(self.mesh, named, compute_ppm=ppm)

    def _classes(self) -> list[Writing]:
        """By coordinates of some axes, or at random."""
        ranks = range(self.mesh.world)
        by = self.draw(st.lists(st.sampled_from(self.mesh.names), max_size=2))
        role = [tuple(self.mesh.coordinates(r)[name] for name in by) for r in ranks]
        if self.draw(st.booleans()):
            odd = self.draw(st.sets(st.sampled_from(ranks), max_size=3))
            role = [(*known, r in odd) for r, known in zip(ranks, role, strict=True)]
        return [Writing([r for r in ranks if role[r] == value]) for value in dict.fromkeys(role)]

    def _closed(self, start: Writing, neighbours: dict[int, set[int]]) -> list[Writing]:
        ranks = set(start.ranks)
        while True:
            wider = ranks.union(*(neighbours[r] for r in ranks))
            found = [c for c in self.classes if wider & set(c.ranks)]
            grown = {r for c in found for r in c.ranks}
            if grown == ranks:
                return found
            ranks = grown

    def _size(self) -> int:
        return self.draw(st.sampled_from([0, 1, 1000, 4096, 1 << 20]))

    def _duration(self) -> int:
        return self.draw(st.sampled_from([-1, -1, -1, 0, 777]))

    def compute(self) -> None:
        c = self.draw(st.sampled_from(self.classes))
        stream = self.draw(st.sampled_from(["compute", "compute", "a"]))
        entry = c.writer.compute(self.draw(st.sampled_from([0, 1, 999, 5000, 123_457])), "k", stream=stream)
        if stream != "compute":
            c.open.append(entry)
        c.writer.memory(8)

    def wait(self) -> None:
        c = self.draw(st.sampled_from(self.classes))
        if c.open:
            target = c.open.pop(self.draw(st.integers(0, len(c.open) - 1)))
            c.writer.wait(target, stream=self.draw(st.sampled_from(["compute", "compute", "a", "b"])))

    def collective(self) -> None:
        axes = self.draw(st.sets(st.sampled_from(self.mesh.names), min_size=1))
        tag = self.draw(st.sampled_from(["", "", "#x"]))
        op, size, duration = self.draw(st.sampled_from(OPS)), self._size(), self._duration()
        groups = {r: {o for o in range(self.mesh.world) if self._alike(r, o, axes)} for r in range(self.mesh.world)}
        for c in self._closed(self.draw(st.sampled_from(self.classes)), groups):
            stream, issuer, blocking = self._placed()
            entry = c.writer.collective(
                op, ",".join(sorted(axes)) + tag, size,
                stream=stream, issuer=issuer, blocking=blocking, duration_ns=duration,
            )  # fmt: skip
            if not blocking:
                c.open.append(entry)

    def _alike(self, one: int, other: int, but: set[str]) -> bool:
        a, b = self.mesh.coordinates(one), self.mesh.coordinates(other)
        return all(a[name] == b[name] for name in self.mesh.names if name not in but)

    def _placed(self) -> tuple[str, str, bool]:
        stream = self.draw(st.sampled_from(["compute", "a", "b", "free"]))
        issuer = "compute" if stream == "compute" else self.draw(st.sampled_from(["compute", "compute", "b"]))
        return stream, issuer, self.draw(st.booleans())

    def p2p(self) -> None:
        axis = self.draw(st.sampled_from([n for n in self.mesh.names if self.mesh.size(n) > 1] or [""]))
        if not axis:
            return
        offset = self.draw(st.integers(1, self.mesh.size(axis) - 1))
        size, duration = self._size(), self._duration()
        to = {r: self._shifted(r, axis, offset) for r in range(self.mesh.world)}
        start = self.draw(st.sampled_from(self.classes))
        reached = {to[r] for r in start.ranks}
        receivers = [c for c in self.classes if set(c.ranks) <= reached]
        if {r for c in receivers for r in c.ranks} == reached and not reached & set(start.ranks):
            self._send(start, axis, offset, size, duration, free=self.draw(st.booleans()))
        else:
            back = {r: {to[r], next(o for o in to if to[o] == r)} for r in to}
            receivers = self._closed(start, back)
            for c in receivers:
                self._send(c, axis, offset, size, duration, free=True)
        for c in receivers:
            stream, issuer, blocking = self._placed()
            name = f"{axis}-{offset}" if self.draw(st.booleans()) else f"{axis}+{self.mesh.size(axis) - offset}"
            entry = c.writer.recv(name, size, stream=stream, issuer=issuer, blocking=blocking, duration_ns=duration)
            if not blocking:
                c.open.append(entry)

    def _send(self, c: Writing, axis: str, offset: int, size: int, duration: int, *, free: bool) -> None:
        stream, issuer, blocking = ("free", "compute", False) if free else self._placed()
        entry = c.writer.send(
            f"{axis}+{offset}", size, stream=stream, issuer=issuer, blocking=blocking, duration_ns=duration
        )
        if not blocking:
            c.open.append(entry)

    def _shifted(self, rank: int, axis: str, offset: int) -> int:
        place = self.mesh.coordinates(rank)
        place[axis] = (place[axis] + offset) % self.mesh.size(axis)
        return self.mesh.rank(**place)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterModel:
    curve = Curve(members=draw(st.integers(2, 4)), sizes_bytes=(500, 4096, 70_000), times_ns=(300, 777, 123_456))
    measured = draw(st.sampled_from([{}, {"all_gather": (curve,), "broadcast": (curve,), "send": (curve,)}]))
    inner = Tier(name="near", spans=draw(st.integers(2, 4)), latency_ns=100, rate=10**9, measured=measured)
    outer = Tier(name="far", spans=0, latency_ns=1500, rate=10**8, node_rate=draw(st.sampled_from([0, 150_000_000])))
    return ClusterModel(
        tiers=(inner, outer),
        ranks_per_node=draw(st.integers(1, 4)),
        algorithms={
            "all_reduce": (Choice(draw(st.sampled_from(Algorithm)), 2000), Choice(draw(st.sampled_from(Algorithm)))),
            "broadcast": (Choice(Algorithm.TREE),),
        },
        eager_bytes=draw(st.sampled_from([0, 2000])),
        transfer_overlap_ppm=draw(st.sampled_from([10**6, 1_100_000])),
        processors=draw(st.sampled_from([Slowdown(), Slowdown(((2, 1_050_000), (3, 1_700_001)))])),
        shared_links=draw(st.sampled_from([Slowdown(), Slowdown(((2, 1_333_333),))])),
        link_ppm=draw(st.dictionaries(st.just(0), st.just(1_500_000))),
    )


def delays(graph: JobGraph, data: st.DataObject) -> tuple[Delay, ...]:
    rank = data.draw(st.integers(0, graph.mesh.world - 1))
    computing = np.flatnonzero(graph.class_of(rank).entries.kind == Kind.COMPUTE).tolist()
    entry = data.draw(st.sampled_from([None, *computing]))
    return (Delay(rank=rank, delay_ns=data.draw(st.sampled_from([1, 55_555])), entry=entry),)


@settings(max_examples=100)
@given(st.data(), clusters())
def test_to_the_nanosecond(data: st.DataObject, cluster: ClusterModel) -> None:
    graph = JobDraw(data).graph()
    changes = Changes(delays=delays(graph, data))

    slow = SlowSimulation(graph, cluster, changes)
    ended_ns = slow.run()
    fast = simulate(graph, cluster, changes, keep=Keep.ALL, trace=True)

    assert fast.iteration_ns == ended_ns
    for number, rank in enumerate(slow.ranks):
        timeline = fast.of(number)
        timed = np.flatnonzero(rank.entries.kind != Kind.MEMORY).tolist()
        added = len(timeline.entries) - len(rank.entries)  # where it starts later
        assert {e: int(timeline.start_ns[added + e]) for e in timed} == {e: rank.start[e] for e in timed}
        assert {e: int(timeline.end_ns[added + e]) for e in timed} == {e: rank.end[e] for e in timed}
        for ours, theirs in ((fast.shown_ns, rank.shown), (fast.late_ns, rank.late)):
            assert {n: int(v[number]) for n, v in ours.items() if v[number]} == {n: v for n, v in theirs.items() if v}
    assert (fast.tail_ns >= 0).all()
    path = critical_path(fast)
    assert [part.start_ns for part in path] == [0, *(part.end_ns for part in path)][: len(path)]
    assert (path[-1].end_ns if path else 0) == ended_ns
    for part in path:  # it really ends then, on that rank
        entry = part.entry - len(fast.of(part.rank).entries) + len(slow.ranks[part.rank].entries)
        assert (slow.begins[part.rank] if entry < 0 else slow.ranks[part.rank].end[entry]) == part.end_ns


def test_a_rank_that_starts_later_begins_its_waits_later() -> None:
    """Also on a stream on which it does nothing else."""
    writer = EntryWriter()
    work = writer.collective("all_reduce", "dp", 0, stream="compute", issuer="compute", blocking=False, duration_ns=0)
    writer.wait(work, stream="a")
    graph = JobGraph.build(Mesh.parse("dp=1"), [(RankClass(name="0", entries=writer.done()), [0])])
    late = Changes(delays=(Delay(rank=0, delay_ns=55_555, entry=None),))
    cluster = ClusterModel(tiers=(Tier(name="near", spans=0, latency_ns=100, rate=10**9),), ranks_per_node=1)
    timeline = simulate(graph, cluster, late, keep=Keep.ALL, trace=True).of(0)
    assert int(timeline.start_ns[-1]) == 55_555
