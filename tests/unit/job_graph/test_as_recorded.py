"""A recorded step simulated with its own times is the step that was; what does not fit together is told by lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.errors import UsageError
from prismdbg.job_graph import builder
from prismdbg.job_graph.as_recorded import ONE_MACHINE_NS, as_recorded, common_clock
from prismdbg.job_graph.builder import GraphRequest
from prismdbg.jobs.storage.run_folder import write_json
from prismdbg.model.collective import Frame
from prismdbg.simulate.cluster.cluster import example
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.entries import Provenance
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Mesh
from tests.unit.logs import MILLISECOND_NS, Job, Tensors

MESH = Mesh.parse("dp=2,tp=2")
GROUPS = {"a": (0, 1), "b": (2, 3), "c": (0, 2), "d": (1, 3)}


def job_of_four() -> Job:
    """In the midst of step 1: its begin is marked, its end is not."""
    job = Job(4)
    for name, ranks in GROUPS.items():
        job.group(name, ranks, desc="mesh_tp" if name in "ab" else "mesh_dp")
    job.steps(1)
    return job


def ends(job: Job, lasting_ns: int = 0) -> None:
    """Each rank's step, one a millisecond after the other, if that is said."""
    for rank in job.ranks:
        job.now_ns += lasting_ns
        job.next_step(rank)


def the_step_that_was(job: Job) -> JobGraph:
    graph = as_recorded(MESH, job.logs, 1)
    timeline = simulate(graph, example())
    begin_ns = min(_mark(job, rank, 1) for rank in job.ranks)
    assert timeline.ended_ns.tolist() == [_mark(job, rank, 2) - begin_ns for rank in job.ranks]
    (iteration,) = [error for error in timeline.fidelity.errors if error.component == "iteration"]
    assert (iteration.mean, iteration.worst, iteration.ranks) == (0.0, 0.0, 4)
    return graph


def _mark(job: Job, rank: int, step: int) -> int:
    return next(mark.time_ns for mark in job.logs[rank].steps if mark.step == step)


class TestTheStepThatWas:
    def test_ranks_that_begin_and_end_at_other_times(self) -> None:
        job = job_of_four()
        job.call("_allgather_base_", "a", tensors=Tensors(shape=(8,)))
        job.now_ns += 3 * MILLISECOND_NS
        for name in "cd":
            job.call(group=name, late_ns={3: 7 * MILLISECOND_NS})
        job.call("broadcast_", root=0, late_ns={2: MILLISECOND_NS})
        ends(job, lasting_ns=MILLISECOND_NS)
        graph = the_step_that_was(job)

        shares = simulate(graph, example()).fidelity
        assert shares.time_share(Provenance.RECORDED, "computation") == 1.0
        assert shares.time_share(Provenance.RECORDED, "communication") == 1.0

    def test_messages_that_are_on_their_way_while_the_sender_goes_on(self) -> None:
        job = job_of_four()
        job.point_to_point(0, 2)
        late = job.logs[2].collectives
        late[-1] = replace(late[-1], time_created_ns=job.now_ns + 900, time_completed_ns=job.now_ns + 2000)
        job.now_ns += MILLISECOND_NS
        job.call()
        ends(job)
        the_step_that_was(job)

    def test_asynchronous_calls_that_queue_behind_each_other(self) -> None:
        job = job_of_four()
        job.call()
        job.call()
        for log in job.logs.values():  # the first is still under way when the second is issued
            first, second = log.collectives[-2:]
            log.collectives[-2:] = [
                replace(first, is_async=True, time_completed_ns=second.time_created_ns + 300),
                replace(second, is_async=True, time_completed_ns=second.time_created_ns + 700),
            ]
        job.now_ns += MILLISECOND_NS
        ends(job)
        the_step_that_was(job)

    def test_a_root_that_is_through_before_the_others_come(self) -> None:
        job = job_of_four()
        job.call("broadcast_", root=0, late_ns={2: 3 * MILLISECOND_NS})
        root = job.logs[0].collectives
        root[-1] = replace(root[-1], time_completed_ns=root[-1].time_created_ns + 1000)
        job.now_ns += MILLISECOND_NS
        job.call()
        ends(job)
        the_step_that_was(job)

    def test_asynchronous_calls_that_overtake_each_other(self) -> None:
        job = job_of_four()
        job.call()
        job.call()
        for log in job.logs.values():
            first, second = log.collectives[-2:]
            log.collectives[-2:] = [
                replace(first, is_async=True, time_completed_ns=second.time_created_ns + 9000),
                replace(second, is_async=True, time_completed_ns=second.time_created_ns + 700),
            ]
        job.now_ns += MILLISECOND_NS
        ends(job)
        the_step_that_was(job)

    @given(
        st.lists(st.tuples(st.sampled_from("abcd0"), st.integers(0, 3), st.integers(0, 10**7)), max_size=12), st.data()
    )
    def test_whatever_was_recorded(self, calls: list[tuple[str, int, int]], data: st.DataObject) -> None:
        job = job_of_four()
        for group, late_rank, late_ns in [*calls, ("0", 0, 0)]:
            job.call(group=group, late_ns={late_rank: late_ns})
            for rank in GROUPS.get(group, job.ranks):  # each is through by itself, some before the last came
                own = job.logs[rank].collectives
                taken_ns = data.draw(st.integers(0, 2 * MILLISECOND_NS))
                done_ns = max((own[-1].time_completed_ns or 0) - taken_ns, own[-1].time_created_ns)
                own[-1] = replace(own[-1], time_completed_ns=done_ns)
            job.now_ns += data.draw(st.integers(0, 10**6))
        ends(job, lasting_ns=data.draw(st.integers(0, 10**6)))
        the_step_that_was(job)

    def test_every_rank_must_have_a_log_and_a_whole_step(self) -> None:
        job = job_of_four()
        job.call()
        with pytest.raises(UsageError, match=r"step 1 of rank 0 \(dp=0 tp=0\) is not complete"):
            as_recorded(MESH, job.logs, 1)
        ends(job)
        del job.logs[3]
        with pytest.raises(UsageError, match=r"rank 3 \(dp=1 tp=1\) has no log, and --as-recorded needs one"):
            as_recorded(MESH, job.logs, 1)

    def test_one_clock_on_one_machine_and_the_wall_s_on_several(self) -> None:
        job = job_of_four()
        for rank, offset_ns in enumerate((5, 5 + ONE_MACHINE_NS // 2, 5 + 3 * ONE_MACHINE_NS, 5)):
            job.logs[rank].wall_offset_ns = offset_ns
        assert common_clock(job.logs) == {0: 0, 1: 0, 2: 3 * ONE_MACHINE_NS, 3: 0}


class TestWhatDoesNotFit:
    """Of real runs' logs: who, what and where."""

    @pytest.fixture
    def built(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Job], JobGraph]:
        def build(job: Job) -> JobGraph:
            job.now_ns += MILLISECOND_NS
            ends(job)
            write_json(tmp_path / "run.json", {})
            monkeypatch.setattr(builder.RunFolder, "rank_folders", lambda _: [Path(str(rank)) for rank in job.logs])
            monkeypatch.setattr(builder, "read_log", lambda folder, _newest=None: job.logs[int(folder.name)])
            return builder.build_graph(GraphRequest(run=tmp_path, mesh=MESH))

        return build

    def test_what_fits(self, built: Callable[[Job], JobGraph]) -> None:
        job = job_of_four()
        job.call(group="a")
        job.call(group="b")
        job.point_to_point(0, 2)
        job.call()
        assert built(job).mesh.world == 4

    def test_a_collective_that_a_member_never_issues(self, built: Callable[[Job], JobGraph]) -> None:
        job = job_of_four()
        job.call()
        job.call(without={2}, frames=(Frame("/x/site-packages/torch/d.py", 9, "f"), Frame("/job/loss.py", 8, "mean")))
        with pytest.raises(UsageError) as caught:
            built(job)
        assert str(caught.value) == (
            "ranks 0, 1, 3 issue all_reduce of 16 bytes on dp,tp at /job/loss.py:8 in mean as #2, which rank 2 never "
            "answers (the last there is #1, all_reduce of 16 bytes on dp,tp at /job/train.py:42 in main)"
        )

    def test_another_size(self, built: Callable[[Job], JobGraph]) -> None:
        job = job_of_four()
        job.call(without={3})
        job.call(only={3}, tensors=Tensors(shape=(5,)), frames=(Frame("/job/odd.py", 3, "odd"),))
        with pytest.raises(UsageError) as caught:
            built(job)
        assert str(caught.value) == (
            "#1 on dp,tp does not match: ranks 0, 1 issue all_reduce of 16 bytes on dp,tp at /job/train.py:42 in "
            "main, rank 3 issues all_reduce of 20 bytes on dp,tp at /job/odd.py:3 in odd"
        )

    def test_an_unmatched_send(self, built: Callable[[Job], JobGraph]) -> None:
        job = job_of_four()
        job.call()
        job.point_to_point(1, 3, received=False)
        with pytest.raises(UsageError) as caught:
            built(job)
        assert str(caught.value) == (
            "rank 1 issues send of 16 bytes to dp+1 at /job/train.py:42 in main as #1, which rank 3 never answers"
        )

    def test_an_unmatched_receive(self, built: Callable[[Job], JobGraph]) -> None:
        job = job_of_four()
        job.call()
        job.point_to_point(1, 3, sent=False)
        with pytest.raises(
            UsageError, match=r"rank 3 issues recv of 16 bytes from dp-1 at .* which rank 1 never answers"
        ):
            built(job)
