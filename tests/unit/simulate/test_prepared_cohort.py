"""What the simulation knows of a cohort beforehand is as fast to find for many calls as for few."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.simulate.cluster.cluster import ClusterModel, Tier
from prismdbg.simulate.engine import prepared_cohort
from prismdbg.simulate.engine.prepared_cohort import PreparedCohort, _beside_ns, _overlapped, plan_class
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.entries import Entries, Kind
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh

SLOW = ClusterModel(
    tiers=(Tier(name="only", spans=0, latency_ns=0, rate=10**9),),
    ranks_per_node=4,
    compute_overlap_ppm=1_100_000,
    transfer_overlap_ppm=1_500_000,
)


def entries_of(*computed_ns: int) -> Entries:
    """Each an asynchronous call, so long a computation, and the wait."""
    writer = EntryWriter()
    for taken_ns in computed_ns:
        call = writer.collective("all_reduce", "dp", 1000, blocking=False)
        writer.compute(taken_ns)
        writer.wait(call)
    return writer.done()


@given(st.lists(st.tuples(st.sampled_from("cxw"), st.integers(0, 9)), max_size=30))
def test_each_call_is_beside_what_comes_before_the_first_wait_for_it(does: list[tuple[str, int]]) -> None:
    writer, calls = EntryWriter(), [0]
    calls[0] = writer.collective("all_reduce", "dp", 1000, blocking=False)
    for what, number in does:
        if what == "c":
            calls.append(writer.collective("all_reduce", "dp", 1000, blocking=False))
        elif what == "x":
            writer.compute(number + 1)
        else:
            writer.wait(calls[number % len(calls)])
    entries = writer.done()
    overlapped, beside_ns = _overlapped(entries), _beside_ns(entries, entries.duration_ns)
    kinds, targets = entries.kind.tolist(), entries.target.tolist()
    under_way = set()
    for call in calls:
        waits = [n for n in range(len(entries)) if kinds[n] == Kind.WAIT and targets[n] == call]
        computes = [n for n in range(call, waits[0] if waits else len(entries)) if kinds[n] == Kind.COMPUTE]
        assert beside_ns[call] == sum(entries.duration_ns[computes].tolist())
        under_way |= set(computes)
    assert set(np.flatnonzero(overlapped).tolist()) == under_way


def test_many_calls_are_planned_as_fast_as_few() -> None:
    entries = entries_of(*range(1, 20_001))
    began_ns = time.thread_time_ns()
    plan_class(entries, np.zeros(len(entries), dtype=np.int64), SLOW)
    assert time.thread_time_ns() - began_ns < 10**9, "several seconds, if each call looked through all entries"


class TestTransfers:
    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Of which sizes the time of a collective was computed."""
        found: list[int] = []
        inner = prepared_cohort.collective_ns

        def told(cluster: ClusterModel, op: str, size_bytes: int, geometry: object) -> int:
            found.append(size_bytes)
            return inner(cluster, op, size_bytes, geometry)  # type: ignore[arg-type]

        monkeypatch.setattr(prepared_cohort, "collective_ns", told)
        return found

    def test_what_a_transfer_takes_alone_is_computed_once(self, asked: list[int]) -> None:
        self.simulated(*range(1, 101))
        assert asked == [1000]

    def test_calls_of_equal_length_are_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From 1,500 ns on, all of the transfer is beside computation."""
        made: list[PreparedCohort] = []
        inner = prepared_cohort.PreparedCohort

        def told(*values: object) -> PreparedCohort:
            made.append(inner(*values))  # type: ignore[arg-type]
            return made[-1]

        monkeypatch.setattr(prepared_cohort, "PreparedCohort", told)
        self.simulated(100, 2000, 3000, 4000)
        (crew,) = made
        assert [call.transfer_ns for call in crew.calls] == [1034, 1500, 1500, 1500]
        assert len(set(map(id, crew.calls))) == 2

    def simulated(self, *computed_ns: int) -> None:
        entries = entries_of(*computed_ns)
        mesh = Mesh.parse("dp=2")
        cluster = replace(SLOW, compute_overlap_ppm=10**6)
        simulate(JobGraph.build(mesh, [(RankClass(name="all", entries=entries), range(2))]), cluster)
