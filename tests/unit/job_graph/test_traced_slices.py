"""What ran between two calls, from a trace: cut at the calls, laid into recorded times, put together where small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import TraceBuilder

from prismdbg.job_graph.interval_layout import SMALL, laid_out, put_together
from prismdbg.job_graph.slice_entries import HELD, Source, entries_of
from prismdbg.memory.peak import peak
from prismdbg.memory.trace import open_trace
from prismdbg.memory.traced_step import BETWEEN, Border, Changed, Item, Ran, TracedStep, Waited, traced_step
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.rank_graph.slice import GraphSlice, build_slice
from prismdbg.simulate.cluster.cluster import example
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.entries import PROVENANCES, Kind, Provenance
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh
from tests.unit.logs import Job, Tensors

LINE = Frame("/job/model.py", 7, "forward")
MESH = Mesh.parse("dp=2")


class Rank:
    """Writes a trace by a clock: `op` begins an operator that ends after so long, `call` issues a collective."""

    def __init__(self, folder: Path, step: int = 3) -> None:
        self.trace = TraceBuilder(folder, clock_ns=1000)
        self._ended = 0
        self.trace.answered(Moment(step), 1000)

    @property
    def now(self) -> int:
        assert self.trace.clock_ns is not None
        return self.trace.clock_ns

    def passes(self, taken_ns: int) -> None:
        self.trace.clock_ns = self.now + taken_ns

    def op(self, name: str, taken_ns: int, *, allocates: int = 0) -> int:
        self.trace.operator(name, before_ended_ns=self._ended, frames=(LINE,))
        block = self.trace.allocate(allocates, f"{name}_inner", outer=name) if allocates else 0
        self.passes(taken_ns)
        self._ended = self.now
        return block

    def call(self, number: int, served_ns: int = 50, step: int = 3) -> None:
        issued = self.now
        self.passes(served_ns)
        self.trace.answered(Moment(step, number), issued)

    def step(self, step: int = 3) -> TracedStep:
        self.trace.answered(Moment(step + 1), self.now)
        self.trace.operator("next", before_ended_ns=self._ended)
        found = traced_step(open_trace(self.trace.write()), step)
        assert found is not None
        return found


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path / "trace")


class TestCutting:
    def test_operators_and_what_lies_between_them(self, rank: Rank) -> None:
        rank.passes(5)
        rank.op("mm", 30)
        rank.passes(7)
        rank.op("autograd::engine::evaluate_function: MmBackward0", 11)
        rank.call(1)
        rank.op("add", 3)
        rank.passes(2)

        line = str(LINE)
        assert rank.step().after == {
            0: (Ran(5, BETWEEN), Ran(30, "mm", line), Ran(7, BETWEEN), Ran(11, "MmBackward0", line)),
            1: (Ran(3, "add", line), Ran(2, BETWEEN)),
        }
        assert rank.step().operators == 3

    def test_an_operator_in_which_a_collective_is_issued_is_on_both_sides(self, rank: Rank) -> None:
        rank.trace.operator("AccumulateGrad")
        rank.passes(40)
        rank.call(1, served_ns=1000)
        rank.passes(8)
        rank._ended = rank.now
        rank.passes(1)
        rank.op("mm", 2)

        assert rank.step().after == {
            0: (Ran(40, "AccumulateGrad"),),
            1: (Ran(8, "AccumulateGrad"), Ran(1, BETWEEN), Ran(2, "mm", str(LINE))),
        }

    def test_memory_and_the_peak_to_the_byte(self, rank: Rank, tmp_path: Path) -> None:
        kept = rank.op("first", 1, allocates=100)
        gone = rank.op("second", 1, allocates=900)
        rank.trace.free(gone)
        rank.call(1)
        rank.op("third", 1, allocates=30)
        rank.trace.free(kept)
        found = rank.step()

        assert found.held_bytes == 0
        changes = {number: [i for i in items if isinstance(i, Changed)] for number, items in found.after.items()}
        assert changes[0] == [Changed(100, "first_inner"), Changed(900, "second_inner"), Changed(-900, "freed")]
        assert changes[1] == [Changed(30, "third_inner"), Changed(-100, "freed")]
        highest = peak(open_trace(tmp_path / "trace"), Moment(3), Moment(4))
        assert highest is not None and highest.size_bytes == 1000
        graph = _slice()
        assert entries_of(graph, MESH, Source(until_ns=1000, traced=found)).peak_bytes() == highest.size_bytes

    def test_a_wait_s_time_is_nobody_s(self, rank: Rank) -> None:
        rank.call(1)
        rank.op("mm", 10)
        began = rank.now + 4
        rank.passes(500)
        rank.trace.waited(17, began)
        rank.passes(6)
        assert rank.step().after[1] == (Ran(10, "mm", str(LINE)), Ran(4, BETWEEN), Waited(17), Ran(6, BETWEEN))

    def test_without_times_of_calls_the_log_s_borders_are_taken(self, tmp_path: Path) -> None:
        trace = TraceBuilder(tmp_path / "trace", now=Moment(3), clock_ns=100)
        trace.operator("mm")
        trace.now, trace.clock_ns = Moment(3, 1), 160
        trace.operator("add", before_ended_ns=120)
        trace.clock_ns = 170
        borders = {0: Border(issued_ns=90, goes_on_ns=90), 1: Border(issued_ns=130, goes_on_ns=150)}
        found = traced_step(open_trace(trace.write()), 3, borders, until_ns=200)

        assert found is not None
        assert found.after == {
            0: (Ran(10, BETWEEN), Ran(20, "mm"), Ran(10, BETWEEN)),
            1: (Ran(10, BETWEEN), Ran(40, "add")),
        }

    def test_a_step_that_was_not_traced(self, rank: Rank, tmp_path: Path) -> None:
        rank.step()
        assert traced_step(open_trace(tmp_path / "trace"), 1) is None


class TestLayingOut:
    def test_shares_fill_the_recorded_time(self) -> None:
        laid = laid_out([Ran(30, "mm"), Changed(8), Ran(10, "add")], 100, 1100, {})
        assert laid == [Ran(750, "mm"), Changed(8), Ran(250, "add")]

    def test_nothing_known_is_the_program(self) -> None:
        assert laid_out([Changed(8)], 5, 25, {}) == [Changed(8), Ran(20, BETWEEN)]
        assert laid_out([Ran(9, "mm")], 25, 25, {}) == [Ran(0, "mm")]

    def test_a_wait_that_took_long_leaves_the_time_after_it_for_what_ran_there(self) -> None:
        laid = laid_out([Ran(30, "mm"), Waited(4), Ran(10, "add")], 0, 1000, {4: 900})
        assert laid == [Ran(300, "mm"), Waited(4), Ran(100, "add")]

    def test_a_wait_that_was_over_before_it_began_takes_nothing(self) -> None:
        laid = laid_out([Ran(30, "mm"), Waited(4), Ran(10, "add")], 0, 1000, {4: 200})
        assert laid == [Ran(750, "mm"), Waited(4), Ran(250, "add")]

    def test_a_wait_for_what_is_not_known_here_is_left_out(self) -> None:
        assert laid_out([Waited(4), Ran(1, "mm")], 0, 10, {}) == [Ran(10, "mm")]

    @given(
        st.lists(st.one_of(st.builds(Ran, st.integers(0, 10**9), st.just("op")), st.builds(Waited, st.integers(0, 3)))),
        st.integers(0, 10**10),
        st.lists(st.integers(-(10**9), 2 * 10**10), min_size=4, max_size=4),
    )
    def test_computing_and_waiting_together_are_the_recorded_time(
        self, items: list[Item], end_ns: int, done: list[int]
    ) -> None:
        done_ns = dict(enumerate(done))
        at_ns = 0
        for item in laid_out(items, 0, end_ns, done_ns):
            if isinstance(item, Ran):
                assert item.taken_ns >= 0
                at_ns += item.taken_ns
            elif isinstance(item, Waited):
                at_ns = max(at_ns, min(done_ns[item.record_id], end_ns))
        assert at_ns == end_ns


ITEMS = st.lists(
    st.one_of(
        st.builds(Ran, st.integers(0, 100), st.sampled_from("abc")),
        st.builds(Changed, st.integers(-50, 50).filter(bool)),
        st.builds(Waited, st.integers(0, 3)),
    )
)


class TestPuttingTogether:
    def test_small_neighbours_are_one(self) -> None:
        small: Any = [
            Ran(3, "a"),
            Changed(8, "x"),
            Ran(4, "b", "l"),
            Changed(-2),
            Changed(7, "y"),
            Ran(90, "c"),
        ]
        assert list(put_together(small, 10)) == [Changed(13, "y"), Ran(7, SMALL, "l"), Ran(90, "c")]
        assert list(put_together([Ran(3, "a"), Ran(4, "a")], 10)) == [Ran(7, "a")]

    @given(ITEMS, st.integers(0, 200))
    def test_no_time_no_byte_and_no_peak_is_lost(self, items: list[Item], least_ns: int) -> None:
        kept = list(put_together(items, least_ns))

        def time_ns(found: list[Item]) -> int:
            return sum(item.taken_ns for item in found if isinstance(item, Ran))

        def levels(found: list[Item]) -> list[int]:
            return np.cumsum([item.size_bytes for item in found if isinstance(item, Changed)]).tolist()

        assert time_ns(kept) == time_ns(items)
        assert levels(kept)[-1:] == levels(items)[-1:] or not any(levels(items)[-1:])
        assert max([0, *levels(kept)]) == max([0, *levels(items)])
        assert [i for i in kept if isinstance(i, Waited)] == [i for i in items if isinstance(i, Waited)]


def _slice() -> GraphSlice:
    job = Job(2)
    job.call(tensors=Tensors(shape=(8,)))
    graph = build_slice(job.logs[0], Moment(0), Moment(9))
    (node,) = graph.nodes
    return replace(graph, nodes=(replace(node, moment=Moment(3, 1), issued_ns=0, completed_ns=200),))


class TestInEntries:
    TRACED = TracedStep(
        step=3,
        held_bytes=4000,
        is_whole=True,
        after={
            0: (Ran(30, "mm", "model.py:7"), Changed(500, "mm"), Ran(10, BETWEEN)),
            1: (Ran(5, "add", "model.py:9"), Changed(-500, "freed")),
        },
    )

    def test_what_is_held_on_a_gpu_is_named_after_it(self) -> None:
        source = Source(split=Provenance.REPLAYED, until_ns=1000, traced=replace(self.TRACED, device="cuda:0"))
        assert f"{HELD} on cuda:0" in entries_of(_slice(), MESH, source).texts

    def test_recorded_times_split_as_the_replay_took_them(self) -> None:
        source = Source(split=Provenance.REPLAYED, from_ns=-400, until_ns=1000, traced=self.TRACED)
        entries = entries_of(_slice(), MESH, source)

        rows = [
            (Kind(int(kind)).name, int(ns), int(size), entries.texts[label], entries.texts[line])
            for kind, ns, size, label, line in zip(
                entries.kind, entries.duration_ns.clip(0), entries.size_bytes, entries.label, entries.line, strict=True
            )
        ]
        assert rows == [
            ("MEMORY", 0, 4000, HELD, ""),
            ("COMPUTE", 300, 0, "mm", "model.py:7"),
            ("MEMORY", 0, 500, "mm", ""),
            ("COMPUTE", 100, 0, BETWEEN, ""),
            ("COLLECTIVE", 0, 32, "", "/job/train.py:42 in main"),
            ("COMPUTE", 800, 0, "add", "model.py:9"),
            ("MEMORY", 0, -500, "freed", ""),
        ]
        computed = entries.provenance[entries.kind == Kind.COMPUTE]
        assert [PROVENANCES[number] for number in computed] == [
            Provenance.REPLAYED, Provenance.REPLAYED, Provenance.RECORDED,
        ]  # fmt: skip
        assert entries.peak_bytes() == 4500

    def test_of_a_captured_rank_what_was_held_is_no_more_than_is_known(self) -> None:
        """The bytes are told as assumed, and that the peak may have been higher."""
        known = Source(until_ns=1000, traced=self.TRACED)
        in_part = replace(known, traced=replace(self.TRACED, is_whole=False))
        shares, doubts = {}, {}
        for source in (known, in_part):
            entries = entries_of(_slice(), MESH, source)
            held = PROVENANCES[entries.provenance[entries.kind == Kind.MEMORY][0]]
            assert held is (Provenance.REAL if source is known else Provenance.ASSUMED)
            graph = JobGraph.build(MESH, [(RankClass(name="captured", entries=entries), [0, 1])])
            fidelity = simulate(graph, example()).fidelity
            shares[source is known] = fidelity.bytes_share(Provenance.REAL, "memory")
            doubts[source is known] = [doubt for doubt in fidelity.doubts if "memory" in doubt]
        assert shares == {True: 1.0, False: 1000 / 5000}
        assert doubts[True] == [] and "only C++ held" in doubts[False][0]

    def test_a_class_stays_small_whatever_its_operators_are(self) -> None:
        """50,000 operators and their memory: 500 such classes are in 100 MB."""
        many = tuple(item for n in range(50_000) for item in (Changed(8), Ran(10, f"op {n % 50}", "l"), Changed(-8)))
        traced = TracedStep(step=3, held_bytes=0, is_whole=True, after={0: (), 1: many})
        entries = entries_of(_slice(), MESH, Source(until_ns=10**6, traced=traced))

        assert entries.stored_bytes <= 100_000_000 // 500
        assert entries.duration_ns[entries.kind == Kind.COMPUTE].sum() == 10**6 - 200 and entries.peak_bytes() == 8

    def test_what_is_told_of_an_other_thread_s_memory_stays_in_order(self) -> None:
        graph = _slice()
        second = replace(graph.nodes[0], record_id=1, moment=Moment(3, 2), thread=1, issued_ns=300, completed_ns=400)
        after = {0: (), 1: (Changed(700, "a"), Changed(-700, "freed")), 2: (Changed(600, "b"),)}
        traced = TracedStep(step=3, held_bytes=0, is_whole=True, after=after)
        entries = entries_of(replace(graph, nodes=(*graph.nodes, second)), MESH, Source(until_ns=1000, traced=traced))

        moved = entries.size_bytes[entries.kind == Kind.MEMORY].tolist()
        assert moved == [0, 700, -700, 600] and entries.peak_bytes() == 700
