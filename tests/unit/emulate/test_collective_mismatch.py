"""Whether ranks that were emulated alone would get through the job together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prismdbg.emulate.collective_mismatch import check_calls, with_cause
from prismdbg.errors import MismatchError
from prismdbg.model import synthesis
from prismdbg.model.collective import Frame
from tests.unit.logs import LINE, Job, Tensors

AT = "at /job/train.py:42 in main"


def job(world: int = 3) -> Job:
    made = Job(world)
    made.steps(2)
    made.point_to_point(0, 1)
    return made


def said(made: Job) -> str:
    with pytest.raises(MismatchError) as caught:
        check_calls(made.logs)
    return str(caught.value)


def test_ranks_that_issue_the_same_fit() -> None:
    made = job()
    made.call("alltoall_base_", only={0}, tensors=Tensors(shape=(8,)))  # each may send and receive as much as it likes
    made.call("alltoall_base_", only={1, 2}, tensors=Tensors(shape=(6,)))
    check_calls(made.logs)


def test_a_call_that_another_rank_never_issues_after_its_last_step() -> None:
    made = job()
    made.call(only={2})
    assert (
        said(made)
        == f"rank 2 issues all_reduce (2.1, group world) {AT}, which rank 0 never issues: it ended before that"
    )


def test_another_call_or_another_size() -> None:
    made = job()
    made.call(only={0})
    made.call("broadcast_", only={1, 2}, root=0)
    assert said(made) == (
        f"rank 0 issues all_reduce (2.2, group world) {AT} where rank 1 issues broadcast (2.2, group world) {AT}: "
        "broadcast instead of all_reduce"
    )
    made = job()
    made.call(only={0, 1})
    made.call(only={2}, tensors=Tensors(shape=(5,)))
    assert said(made).endswith("input elements 5 instead of 4")


def test_objects_may_be_of_other_sizes() -> None:
    """What peers' objects need is synthesized."""
    made, frames = job(), (Frame("/torch/distributed_c10d.py", 9, "all_gather_object"), LINE)
    made.call("allgather_", only={0}, tensors=Tensors(shape=(37,)), frames=frames)
    made.call("allgather_", only={1, 2}, tensors=Tensors(shape=(38,)), frames=frames)
    check_calls(made.logs)


def test_a_message_that_nobody_receives_or_sends() -> None:
    made = job()
    made.point_to_point(1, 2, received=False)
    assert said(made) == f"rank 1 issues send (2.2, group world) {AT}, which rank 2 never receives"
    made = job()
    made.point_to_point(1, 2, sent=False)
    assert said(made) == f"rank 2 issues recv (2.1, group world) {AT}, which rank 1 never sends"


def test_of_ranks_that_did_not_run_nothing_is_known() -> None:
    made = job()
    made.point_to_point(0, 2, received=False)
    del made.logs[2]
    check_calls(made.logs)


def test_integers_that_were_synthesized_may_be_the_cause() -> None:
    made = job()
    logs = dict(made.logs)
    error = MismatchError("rank 0 differs", hint="compare the two lines")
    assert with_cause(error, logs) is error
    made.call(only={1}, tensors=Tensors(dtype="int64"))
    last = made.logs[1].collectives[-1]
    made.logs[1].collectives[-1] = replace(last, synthesized=True, made=synthesis.ECHO)
    assert with_cause(error, made.logs).hint == (
        f"compare the two lines. Or the integers that all_reduce (2.2, group world) {AT} received are synthesized: "
        "the ranks may differ because of them"
    )
