"""One rank's schedule, from a simulated timeline, and the pace it sets: on the virtual clock to the nanosecond."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismdbg.emulate.steps_alike import steps_alike
from prismdbg.errors import UsageError
from prismdbg.model.schedule import Row, RowKind, Schedule
from prismdbg.rank.emulation.pace import VIRTUAL_BEGIN_NS, Due, Issued, Pace
from prismdbg.simulate.cluster.cluster import ClusterModel, ideal
from prismdbg.simulate.engine.arrivals import Arrivals
from prismdbg.simulate.engine.changes import Changes
from prismdbg.simulate.engine.engine import Keep
from prismdbg.simulate.engine.schedule import SLOWED_PPM, members_of, schedule_of
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.channel import Across, parse
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh
from tests.unit.logs import MILLISECOND_NS, Job
from tests.unit.simulate.test_predict_agrees import JobDraw, clusters
from tests.unit.simulate.test_predict_simulate import SECOND_A_GB, job, one_f_one_b
from tests.unit.slow_simulation import SlowSimulation


def schedules(graph: JobGraph, cluster: ClusterModel, ranks: Iterable[int]) -> list[Schedule]:
    timeline = simulate(graph, cluster, keep=Keep.ALL)
    arrivals = Arrivals(timeline)
    return [schedule_of(timeline, rank, arrivals) for rank in ranks]


def call_of(schedule: Schedule, number: int, mesh: Mesh) -> Issued:
    """As the rank itself would make it."""
    row = schedule.rows[number]
    lane = schedule.channels[row.channel]
    if row.kind is RowKind.COLLECTIVE:
        channel = parse(lane.name, mesh)
        assert isinstance(channel, Across)
        ranks = members_of(mesh, schedule.rank, channel)
        return Issued(label=row.op, group=lane.name, ranks=ranks, size_bytes=row.size_bytes)
    return Issued(
        label=row.op, group="world", ranks=(), size_bytes=row.size_bytes, is_p2p=True, peer=lane.peer, tag=lane.tag
    )


def driven(schedule: Schedule, mesh: Mesh) -> tuple[list[int], int]:
    """When each call ends on the virtual clock, and the iteration. Streams that issue are threads."""
    pace = Pace(schedule, None)
    pace._threads = {row.issuer: row.issuer for row in schedule.rows if row.is_call}
    ends = []
    for number, row in enumerate(schedule.rows):
        if row.is_call:
            due = pace.issue(call_of(schedule, number, mesh), thread=row.issuer)
            assert due is not None
            ends.append(due.ends_ns - VIRTUAL_BEGIN_NS)
    pace.begin_step(1)
    return ends, pace.now_ns() - VIRTUAL_BEGIN_NS


def simulated_ends(graph: JobGraph, cluster: ClusterModel, rank: int) -> list[int]:
    timeline = simulate(graph, cluster, keep=Keep.ALL).of(rank)
    ends: list[int] = timeline.end_ns[timeline.entries.communicates].tolist()
    return ends


def lengths_of(schedule: Schedule) -> list[int]:
    """From when this rank could begin."""
    return [row.late_ns + row.transfer_ns for row in schedule.rows if row.is_call]


def simulated_lengths(graph: JobGraph, cluster: ClusterModel, rank: int) -> list[int]:
    timeline = simulate(graph, cluster, keep=Keep.ALL).of(rank)
    lengths: list[int] = (timeline.end_ns - timeline.start_ns)[timeline.entries.communicates].tolist()
    return lengths


@settings(max_examples=60, deadline=None)
@given(st.data(), clusters())
def test_the_virtual_clock_is_the_simulation_to_the_nanosecond(data: st.DataObject, cluster: ClusterModel) -> None:
    graph = JobDraw(data).graph()
    for schedule in schedules(graph, cluster, range(graph.mesh.world)):
        ends, iteration_ns = driven(schedule, graph.mesh)

        assert ends == simulated_ends(graph, cluster, schedule.rank)
        assert iteration_ns == schedule.iteration_ns
        assert lengths_of(schedule) == simulated_lengths(graph, cluster, schedule.rank)


@settings(max_examples=60, deadline=None)
@given(st.data(), clusters())
def test_others_come_when_each_of_them_does(data: st.DataObject, cluster: ClusterModel) -> None:
    graph = JobDraw(data).graph()
    slow = SlowSimulation(graph, replace(cluster, eager_bytes=0), Changes())
    slow.run()
    timeline = simulate(graph, replace(cluster, eager_bytes=0), keep=Keep.ALL)
    arrivals = Arrivals(timeline)
    for call in slow.calls.values():
        for rank, (entry, _) in call.came.items():
            others = [slow.ranks[other].start[came[0]] for other, came in call.came.items() if other != rank]
            assert arrivals.others_ns(rank, entry) == max(others, default=0)


class TestKnownJobs:
    def test_buckets_that_overlap_the_backward_pass(self) -> None:
        writer = EntryWriter()
        buckets = []
        for size_bytes in (4000, 9000, 100):
            writer.compute(2500, "backward")
            buckets.append(writer.collective("all_reduce", "dp", size_bytes, blocking=False))
        for bucket in buckets:
            writer.wait(bucket)
        writer.compute(700, "optimizer")
        graph = job("dp=4", (writer, range(4)), compute_ppm=[1_000_000, 1_100_000, 1_000_000, 1_250_000])

        for schedule in schedules(graph, SECOND_A_GB, range(4)):
            ends, iteration_ns = driven(schedule, graph.mesh)
            assert ends == simulated_ends(graph, SECOND_A_GB, schedule.rank)
            assert iteration_ns == simulate(graph, SECOND_A_GB).ended_ns[schedule.rank]

    def test_a_pipeline(self) -> None:
        stages = [(RankClass(name=str(s), entries=one_f_one_b(s, 4, 6, 1000, 2000)), [s]) for s in range(4)]
        graph = JobGraph.build(Mesh.parse("pp=4"), stages)

        times = [driven(schedule, graph.mesh)[1] for schedule in schedules(graph, ideal(), range(4))]

        assert times == simulate(graph, ideal()).ended_ns.tolist()
        assert max(times) == (6 + 3) * 3000

    def test_several_groups(self) -> None:
        graph = gpt_job(Mesh.parse("pp=2,dp=2,tp=2"), GptShape(layers=4, hidden=256, microbatches=3))
        for schedule in schedules(graph, SECOND_A_GB, range(8)):
            assert driven(schedule, graph.mesh)[0] == simulated_ends(graph, SECOND_A_GB, schedule.rank)


def two_calls() -> tuple[Schedule, Mesh]:
    writer = EntryWriter()
    writer.compute(100)
    writer.collective("all_reduce", "dp", 1000, line="train.py:7 in step")
    writer.compute(50)
    writer.collective("all_gather", "dp", 400, line="train.py:9 in step")
    graph = job("dp=2,tp=2", (writer, range(4)))
    return schedules(graph, SECOND_A_GB, [1])[0], graph.mesh


class TestWhatDoesNotMatch:
    @pytest.mark.parametrize(
        ("changed", "why"),
        [
            ({"label": "broadcast"}, "another operation"),
            ({"size_bytes": 1004}, "another size"),
            ({"ranks": (0, 1)}, "another group"),
            ({"is_p2p": True, "label": "send"}, "another operation"),
        ],
    )
    def test_another_call(self, changed: dict[str, object], why: str) -> None:
        schedule, mesh = two_calls()
        call = replace(call_of(schedule, 1, mesh), where=lambda: "mine.py:3 in run", **changed)  # type: ignore[arg-type]

        with pytest.raises(UsageError) as caught:
            Pace(schedule, None).issue(call)

        assert str(caught.value).endswith(f": {why}")
        assert "mine.py:3 in run" in str(caught.value)
        assert "all_reduce of 1,000 bytes on dp at train.py:7 in step" in str(caught.value)
        assert "build the graph again" in caught.value.hint

    def test_one_call_too_many(self) -> None:
        schedule, mesh = two_calls()
        pace = Pace(schedule, None)
        for number in (1, 3):
            pace.issue(call_of(schedule, number, mesh))
        with pytest.raises(UsageError, match=r"has no more calls: one call too many"):
            pace.issue(call_of(schedule, 3, mesh))

    def test_a_step_that_ends_early(self) -> None:
        schedule, mesh = two_calls()
        pace = Pace(schedule, None)
        pace.issue(call_of(schedule, 1, mesh))
        with pytest.raises(UsageError, match=r"ended step 0 without all_gather of 400 bytes on dp at train.py:9"):
            pace.begin_step(1)

    def test_a_second_group_of_the_same_ranks(self) -> None:
        schedule, mesh = two_calls()
        pace = Pace(schedule, None)
        pace.issue(call_of(schedule, 1, mesh))
        with pytest.raises(UsageError, match="another group of the same ranks"):
            pace.issue(replace(call_of(schedule, 3, mesh), group="again"))

    def test_steps_before_the_first_are_not_paced(self) -> None:
        schedule, mesh = two_calls()
        pace = Pace(replace(schedule, steps=(2,)), None)
        assert pace.issue(replace(call_of(schedule, 1, mesh), label="barrier")) is None
        pace.begin_step(1)
        pace.begin_step(2)
        for number in (1, 3):
            assert pace.issue(call_of(schedule, number, mesh)) is not None
        pace.begin_step(3)
        assert pace.issue(call_of(schedule, 3, mesh)) is None


class TestWallClock:
    @pytest.mark.parametrize(("arrives_ns", "ends_ns"), [(10, 70), (39, 70), (100, 130)])
    def test_a_call_ends_when_the_last_is_there_and_the_transfer_over(self, arrives_ns: int, ends_ns: int) -> None:
        now = [5000]
        pace, mesh = self._pace([Row(kind=RowKind.COLLECTIVE, stream=1, op="all_reduce", channel=0, size_bytes=8,
                                     others_ns=40, late_ns=7, transfer_ns=30)], now)  # fmt: skip
        pace.begin_step(0)
        now[0] += arrives_ns
        due = pace.issue(call_of(mesh[0], 0, mesh[1]))

        began_ns = 5000 + max(40, arrives_ns)
        assert due == Due(
            step=0, row=0, arrived_ns=5000 + arrives_ns, began_ns=began_ns, ends_ns=5000 + ends_ns,
            late_ns=7,
        )  # fmt: skip
        assert due.length_ns == 7 + 30, "on a device the others come as much later as simulated"

    def test_transfers_of_one_communicator_queue(self) -> None:
        now = [0]
        row = Row(kind=RowKind.COLLECTIVE, stream=1, op="all_reduce", channel=0, size_bytes=8, transfer_ns=30)
        pace, mesh = self._pace([row, row, replace(row, stream=-1)], now)
        pace.begin_step(0)
        ends = []
        for number in range(3):
            now[0] += 1
            due = pace.issue(call_of(mesh[0], number, mesh[1]))
            assert due is not None
            ends.append(due.ends_ns)

        assert ends == [31, 61, 33]

    def _pace(self, rows: list[Row], now: list[int]) -> tuple[Pace, tuple[Schedule, Mesh]]:
        schedule, mesh = two_calls()
        schedule = replace(schedule, rows=tuple(rows))
        return Pace(schedule, lambda: now[0]), (schedule, mesh)


class TestDrift:
    def test_peers_come_as_in_a_job_whose_ranks_all_compute_longer(self) -> None:
        stages = [(RankClass(name=str(s), entries=one_f_one_b(s, 4, 6, 1000, 2000)), [s]) for s in range(4)]
        graph = JobGraph.build(Mesh.parse("pp=4"), stages)
        plain, slowed, there = (
            Arrivals(simulate(graph, SECOND_A_GB, self.slower(ppm), keep=Keep.ALL))
            for ppm in (10**6, SLOWED_PPM, 1_050_000)
        )
        timeline = simulate(graph, SECOND_A_GB, keep=Keep.ALL)
        moved = 0
        for rank in range(4):
            rows = schedule_of(timeline, rank, plain, slowed=slowed).rows
            wanted = schedule_of(timeline, rank, there).rows
            for row, other in zip(rows, wanted, strict=True):
                assert row.others_at_ns(1_050_000) == pytest.approx(other.others_ns, abs=2)
                assert row.others_at_ns(10**6) == row.others_ns
                moved += row.others_ns != other.others_ns
        assert moved > 10

    def test_on_the_virtual_clock_nothing_drifts(self) -> None:
        schedule, mesh = two_calls()
        row = replace(schedule.rows[1], others_gain_ns=10**9)
        pace = Pace(replace(schedule, rows=(schedule.rows[0], row, *schedule.rows[2:])), None)
        pace.issue(call_of(schedule, 1, mesh))
        pace.issue(call_of(schedule, 3, mesh))
        pace.begin_step(1)
        assert pace.drift_ppm == 10**6

    def slower(self, ppm: int) -> Changes:
        return Changes(compute_ppm=dict.fromkeys(range(4), ppm))


class TestFile:
    def test_comes_back_as_it_was(self, tmp_path: Path) -> None:
        schedule, _ = two_calls()
        schedule.save(tmp_path / "s.json")
        assert Schedule.load(tmp_path / "s.json") == schedule

    @pytest.mark.parametrize("text", ["", "{}", '{"format": 7}', "[]"])
    def test_what_is_none(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(UsageError, match="is not a schedule"):
            Schedule.load(tmp_path / "s.json")


class TestStepsThatAreAlike:
    def job(self, sizes: list[int]) -> Job:
        """A step for each, of this length in ms; what a step issues is told by its sign."""
        run = Job(2)
        run.steps(1)
        for size in sizes:
            run.call("broadcast_" if size < 0 else "allreduce_", root=0)
            run.now_ns += abs(size) * MILLISECOND_NS
            for rank in run.ranks:
                run.next_step(rank)
        return run

    def test_all_of_one_kind_count_adjacent_or_not(self) -> None:
        logs = self.job([-9, 5, 7, 6, -3, 4]).logs
        found = steps_alike([logs[0], logs[1]])
        assert (found.steps, found.typical, found.whole) == ((2, 3, 4, 6), 2, 6)

    def test_a_call_in_every_third_step_leaves_two_thirds_of_the_steps(self) -> None:
        logs = self.job([5, 6, -7] * 13).logs
        assert len(steps_alike([logs[0], logs[1]]).steps) == 26

    def test_of_two_kinds_that_come_equally_often_the_one_that_goes_on_longer(self) -> None:
        logs = self.job([-9, 5, -3, 4]).logs
        assert steps_alike([logs[0], logs[1]]).steps == (2, 4)

    def test_none(self) -> None:
        with pytest.raises(UsageError, match="no complete step after the first") as caught:
            steps_alike([Job(2).logs[0]])
        assert "--steps" in caught.value.hint
