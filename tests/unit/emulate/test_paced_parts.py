"""What a paced rank's iterations were made of, from its log, as its simulated ones are from the timeline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismdbg.capsule.log.events import Note, RankLog
from prismdbg.capsule.log.notes import DEVICE_WAITS
from prismdbg.emulate.paced_parts import emulated_parts, runs_on_stream
from prismdbg.emulate.pacing import RankPass
from prismdbg.model.schedule import Row, RowKind, Schedule
from prismdbg.simulate.cluster.cluster import ClusterModel
from prismdbg.simulate.engine.arrivals import Arrivals
from prismdbg.simulate.engine.engine import Keep
from prismdbg.simulate.engine.schedule import schedule_of
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.report.rank_parts import RankParts, simulated_parts
from tests.unit.logs import MILLISECOND_NS, Job, Tensors, put_on_device
from tests.unit.simulate.test_predict_agrees import JobDraw, clusters

TRANSFER_NS = 2 * MILLISECOND_NS


def schedule(*rows: Row) -> Schedule:
    """Of steps 1 to 3."""
    return Schedule(rank=0, step=1, steps=(1, 2, 3), iteration_ns=0, streams=("compute",), channels=(), rows=rows)


def row(size_bytes: int = 16, *, blocking: bool = True) -> Row:
    return Row(
        kind=RowKind.COLLECTIVE, blocking=blocking, op="all_reduce", size_bytes=size_bytes, transfer_ns=TRANSFER_NS
    )


def log_of(*stood_ns: int, waits_at_ns: int | None = None) -> RankLog:
    """Steps of 10 ms, each with one call a millisecond after its begin that holds its issuer for so long. waits_at_ns:
    it holds nobody, and is waited for so long after it was issued."""
    job = Job(1)
    job.next_step(0)
    for taken_ns in stood_ns:
        begin_ns = job.now_ns
        job.call(tensors=Tensors())
        call = job.logs[0].collectives[-1]
        changed = replace(call, time_completed_ns=call.time_created_ns + taken_ns)
        if waits_at_ns is not None:
            changed = replace(
                changed,
                is_async=True,
                time_waited_ns=call.time_created_ns + waits_at_ns,
                waiting_thread_id=call.thread_id,
            )
        job.logs[0].collectives[-1] = changed
        job.now_ns = begin_ns + 10 * MILLISECOND_NS
        job.next_step(0)
    return job.logs[0]


class TestEmulated:
    def test_what_it_stood_is_transfer_first_then_waiting(self) -> None:
        found = emulated_parts(log_of(*[3 * MILLISECOND_NS] * 3), schedule(row()))
        assert found == RankParts(
            computed_ns=7 * MILLISECOND_NS, shown_ns=TRANSFER_NS, waited_ns=3 * MILLISECOND_NS - TRANSFER_NS
        )

    def test_the_median_of_each_part(self) -> None:
        found = emulated_parts(log_of(MILLISECOND_NS, 9 * MILLISECOND_NS, 3 * MILLISECOND_NS), schedule(row()))
        assert found is not None
        assert (found.computed_ns, found.waited_ns) == (7 * MILLISECOND_NS, MILLISECOND_NS)

    @pytest.mark.parametrize(("waits_at_ms", "shown_ms"), [(0, 2), (1, 2), (2, 1), (3, 0), (5, 0)])
    def test_what_ran_meanwhile_hides_a_transfer(self, waits_at_ms: int, shown_ms: int) -> None:
        log = log_of(*[3 * MILLISECOND_NS] * 3, waits_at_ns=waits_at_ms * MILLISECOND_NS)
        found = emulated_parts(log, schedule(row(blocking=False)))
        assert found is not None
        assert found.shown_ns == shown_ms * MILLISECOND_NS
        assert sum(found.by_component.values()) == 10 * MILLISECOND_NS

    def test_of_a_device_the_log_does_not_tell_how_long_its_stream_stood(self) -> None:
        job = Job(1)
        job.logs[0] = log_of(*[3 * MILLISECOND_NS] * 3)
        put_on_device(job)
        log = job.logs[0]
        assert emulated_parts(log, schedule(row())) is not None, "over gloo the host stands, as paced ranks do"
        assert not runs_on_stream(log, schedule(row()))
        log.notes.append(Note(DEVICE_WAITS, 0, {"device": "cuda:0", "group": log.collectives[0].group}))
        assert emulated_parts(log, schedule(row())) is None
        assert runs_on_stream(log, schedule(row()))
        assert not runs_on_stream(log, replace(schedule(row()), steps=(9,))), "no call of a paced step"

    def test_calls_that_are_not_those_of_the_schedule(self) -> None:
        assert emulated_parts(log_of(MILLISECOND_NS), schedule(row(17))) is None
        assert emulated_parts(log_of(MILLISECOND_NS), schedule(row(), row())) is None

    def test_steps_that_were_not_paced_do_not_count(self) -> None:
        one_more = log_of(*[3 * MILLISECOND_NS] * 3, 9 * MILLISECOND_NS, 9 * MILLISECOND_NS)
        assert emulated_parts(one_more, schedule(row())) == emulated_parts(
            log_of(*[3 * MILLISECOND_NS] * 3), schedule(row())
        )


@settings(max_examples=60, deadline=None)
@given(st.data(), clusters())
def test_simulated_they_are_the_iteration(data: st.DataObject, cluster: ClusterModel) -> None:
    graph = JobDraw(data).graph()
    timeline = simulate(graph, cluster, keep=Keep.ALL)
    arrivals = Arrivals(timeline)
    for rank in range(graph.mesh.world):
        made = schedule_of(timeline, rank, arrivals)
        parts = simulated_parts(timeline.of(rank), made)
        assert sum(parts.by_component.values()) == made.iteration_ns
        assert parts.computed_ns == timeline.computed_ns[rank]


class TestDifferences:
    SIMULATED = RankParts(computed_ns=600, shown_ns=300, waited_ns=100)

    def test_the_largest_may_be_of_a_component(self) -> None:
        """A rank that computes longer and waits less takes as long, and is not what was simulated."""
        emulated = RankParts(computed_ns=650, shown_ns=300, waited_ns=51)
        found = RankPass(
            rank=3, simulated_ns=1000, emulated_ns=1001, steps=5, simulated=self.SIMULATED, emulated=emulated
        )
        assert found.difference == pytest.approx(0.001)
        assert found.largest == ("computation", pytest.approx(0.05))
        assert found.to_json()["components"]["waiting"] == {"simulated_ns": 100, "emulated_ns": 51}

    def test_where_the_parts_are_not_known(self) -> None:
        found = RankPass(rank=3, simulated_ns=1000, emulated_ns=980, steps=5, simulated=self.SIMULATED, emulated=None)
        assert found.largest == ("iteration", pytest.approx(-0.02))
        assert found.to_json()["components"] == {}
