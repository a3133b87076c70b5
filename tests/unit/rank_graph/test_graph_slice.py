"""The rank's slice of the execution graph: what is in it."""

from __future__ import annotations

from dataclasses import replace

from prismdbg.model.moment import Moment
from prismdbg.rank_graph.slice import GraphSlice, build_slice
from tests.unit.logs import LINE, MILLISECOND_NS, Job, Tensors


def pipeline_job() -> Job:
    """Two steps over three ranks with a subgroup, point-to-point, a second thread and an open call."""
    job = Job(3)
    job.group("pair", (0, 2), desc="mesh_tp")
    job.steps(1)
    job.call("broadcast_", root=1, tensors=Tensors(shape=(2, 3), dtype="bfloat16"))
    job.call("_allgather_base_", "pair", thread=9, late_ns={2: MILLISECOND_NS})
    job.point_to_point(0, 1)
    job.call(done=False)
    return job


def slice_of(job: Job, rank: int, first: str = "0", last: str = "9") -> GraphSlice:
    return build_slice(job.logs[rank], Moment.parse(first), Moment.parse(last))


class TestWhatIsInIt:
    def test_what_was_made_up_and_where_it_was_waited_for(self) -> None:
        job = pipeline_job()
        log = job.logs[0]
        waited_ns = log.collectives[1].time_created_ns + 5
        job.calls(0)[1] = replace(log.collectives[1], synthesized=True, time_waited_ns=waited_ns, waiting_thread_id=1)
        graph = slice_of(job, 0)

        assert [node.synthesized for node in graph.nodes][:3] == [False, True, False]
        assert graph.nodes[1].waited_ns == graph.nodes[1].issued_ns + 5 and graph.nodes[0].waited_ns is None

    def test_from_a_to_b_both_included(self) -> None:
        graph = slice_of(pipeline_job(), 0, "1.1", "1.2")

        assert [str(node.moment) for node in graph.nodes] == ["1.1", "1.2"]
        assert [node.name for node in graph.nodes] == ["broadcast", "all_gather_into_tensor"]
        assert list(graph.groups) == ["0", "pair"]
        assert graph.groups["pair"].ranks == (0, 2)

    def test_times_count_from_the_first_issue(self) -> None:
        first, second = slice_of(pipeline_job(), 0, "1.1", "1.2").nodes

        assert first.issued_ns == 0
        assert first.completed_ns == MILLISECOND_NS // 2
        assert second.completed_ns is not None  # rank 2 came a millisecond later
        assert second.completed_ns - second.issued_ns == MILLISECOND_NS + MILLISECOND_NS // 2

    def test_bytes_are_of_what_reaches_another_rank(self) -> None:
        job = pipeline_job()

        sent = {rank: slice_of(job, rank, "1.1", "1.1").nodes[0].sent_bytes for rank in job.ranks}
        received = {rank: slice_of(job, rank, "1.1", "1.1").nodes[0].received_bytes for rank in job.ranks}

        assert sent == {0: 0, 1: 12, 2: 0}
        assert received == {0: 12, 1: 0, 2: 12}

    def test_what_never_completed_has_no_end(self) -> None:
        node = slice_of(pipeline_job(), 0).nodes[-1]

        assert node.completed_ns is None
        assert node.frames == (LINE,)

    def test_an_undescribed_group_has_no_ranks(self) -> None:
        job = pipeline_job()
        job.logs[0].groups.clear()

        graph = slice_of(job, 0)

        assert graph.groups["0"].ranks == ()

    def test_an_empty_window(self) -> None:
        graph = slice_of(pipeline_job(), 0, "7", "8")

        assert graph.nodes == ()
