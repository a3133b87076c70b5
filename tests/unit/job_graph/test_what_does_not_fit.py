"""Whatever one rank of a job does otherwise than the others is one error that names it, and the lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismdbg.errors import UsageError
from prismdbg.job_graph.builder import check_it_ends
from prismdbg.job_graph.slice_entries import entries_of
from prismdbg.model.collective import Collective, Frame
from prismdbg.model.moment import Moment
from prismdbg.rank_graph.slice import build_slice
from prismdbg.simulate.graph.folding import fold
from prismdbg.simulate.graph.mesh import Mesh
from tests.unit.logs import Job, Tensors

MESH = Mesh.parse("dp=2,tp=2")
GROUPS = {"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3), "5": (0, 1, 2, 3)}
OPS = ("allreduce_", "_allgather_base_", "_reduce_scatter_base_", "broadcast_", "alltoall_base_")
ALONG = (("0",), ("5",), ("1", "2"), ("3", "4"))  # groups that are used together: every rank is in one


@dataclass(frozen=True, slots=True)
class Step:
    """One call of every rank, each in its own group of these."""

    op: str
    along: tuple[str, ...]
    size: int


steps = st.lists(
    st.builds(Step, op=st.sampled_from(OPS), along=st.sampled_from(ALONG), size=st.integers(1, 9)),
    min_size=1,
    max_size=6,
)


def job_of(drawn: list[Step]) -> Job:
    """Each call on a line of its own."""
    job = Job(4)
    for name, ranks in GROUPS.items():
        job.group(name, ranks)
    for number, step in enumerate(drawn, 1):
        for group in step.along:
            root = 0 if step.op == "broadcast_" else -1
            frames = (Frame("/job/train.py", number, "main"),)
            job.call(step.op, group, tensors=Tensors(shape=(step.size,)), frames=frames, root=root)
    return job


def built(job: Job) -> None:
    slices = [build_slice(job.logs[rank], Moment(0), Moment(9)) for rank in job.ranks]
    check_it_ends(fold(MESH, {graph.rank: entries_of(graph, MESH) for graph in slices}))


def longer(call: Collective) -> Collective:
    metas = tuple(replace(meta, shape=(meta.shape[0] + 1,)) for meta in call.inputs)
    return replace(call, inputs=metas if call.inputs else (), outputs=metas if call.outputs else ())


def of_integers(call: Collective) -> Collective:
    metas = tuple(replace(meta, dtype="int32") for meta in call.inputs)
    return replace(call, inputs=metas, outputs=metas)


def another_op(call: Collective) -> Collective:
    return replace(call, op="allgather_" if call.op != "_allgather_base_" else "allreduce_", reduce_op="", root=-1)


def another_root(call: Collective) -> Collective:
    return replace(call, root=1)


CHANGES: dict[str, Callable[[Collective], Collective]] = {
    "size": longer,
    "tensors": of_integers,
    "operation": another_op,
    "root": another_root,
}


@settings(max_examples=40, deadline=None)
@given(steps)
def test_ranks_that_do_the_same_fit(drawn: list[Step]) -> None:
    built(job_of(drawn))


@settings(max_examples=120, deadline=None)
@given(steps, st.integers(0, 3), st.sampled_from(sorted(CHANGES)), st.data())
def test_one_call_of_one_rank_is_another(drawn: list[Step], rank: int, change: str, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(drawn) - 1))
    if change == "size" and drawn[number].op == "alltoall_base_":
        return  # there each may give its own
    job = job_of(drawn)
    calls = job.logs[rank].collectives
    calls[number] = CHANGES[change](calls[number])
    with pytest.raises(UsageError) as caught:
        built(job)
    said = str(caught.value)
    assert f"/job/train.py:{number + 1} in main" in said, said
    assert "does not match" in said and " issue" in said, said
    assert str(rank) in said.partition(" does not match")[2], said


@settings(max_examples=120, deadline=None)
@given(steps, st.integers(0, 3), st.data())
def test_one_call_is_left_out(drawn: list[Step], rank: int, data: st.DataObject) -> None:
    """Named where it is missing, or at the first call of another kind that stands in its place."""
    number = data.draw(st.integers(0, len(drawn) - 1))
    job = job_of(drawn)
    del job.calls(rank)[number]
    with pytest.raises(UsageError) as caught:
        built(job)
    said = str(caught.value)
    assert any(word in said for word in ("never issues", "never answers", "never answer", "does not match")), said
    assert "/job/train.py:" in said and str(rank) in said, said


@settings(max_examples=120, deadline=None)
@given(steps, st.integers(0, 3), st.data())
def test_two_calls_change_places(drawn: list[Step], rank: int, data: st.DataObject) -> None:
    """Where one is along tp and the other along dp nobody waits in a circle: that goes well. Of two
    all_to_all nobody can tell, for each rank may give its own sizes."""
    number = data.draw(st.integers(0, max(len(drawn) - 2, 0)))
    if len(drawn) < 2 or drawn[number] == drawn[number + 1]:
        return
    one, other = drawn[number : number + 2]
    cannot_tell = one.op == other.op == "alltoall_base_" and one.along == other.along
    if cannot_tell or {one.along, other.along} == set(ALONG[2:]):
        return
    job = job_of(drawn)
    calls = job.logs[rank].collectives
    first, second = calls[number : number + 2]
    calls[number : number + 2] = [
        replace(second, record_id=first.record_id, time_created_ns=first.time_created_ns,
                time_completed_ns=first.time_completed_ns),
        replace(first, record_id=second.record_id, time_created_ns=second.time_created_ns,
                time_completed_ns=second.time_completed_ns),
    ]  # fmt: skip
    with pytest.raises(UsageError) as caught:
        built(job)
    said = str(caught.value)
    assert "does not match" in said or "deadlock" in said, said
    assert f"/job/train.py:{number + 1} in main" in said or f"/job/train.py:{number + 2} in main" in said, said


@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from([(0, 1), (1, 0), (2, 0), (1, 3), (3, 1)]), st.booleans())
def test_a_message_that_one_side_forgets(drawn: list[Step], ends: tuple[int, int], is_sent: bool) -> None:
    job = job_of(drawn)
    job.point_to_point(*ends, sent=is_sent, received=not is_sent)
    with pytest.raises(UsageError) as caught:
        built(job)
    source, target = ends
    issues, silent = (source, target) if is_sent else (target, source)
    said = str(caught.value)
    assert said.startswith(f"rank {issues} issues {'send' if is_sent else 'recv'} of 16 bytes"), said
    assert f"rank {silent} never answers" in said and "/job/train.py:42 in main" in said, said
