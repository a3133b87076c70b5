"""A graph of files that mark no steps: what all ranks completed is one iteration, and the graph says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from prismdbg.capsule.log.events import RankLog
from prismdbg.errors import UsageError
from prismdbg.exporters import chakra, flight_recorder
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.job_graph.one_iteration import one_iteration
from prismdbg.simulate.graph.entries import Kind
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Mesh
from tests.unit.logs import MILLISECOND_NS, Job

Write = Callable[[Mapping[int, RankLog], Path], object]
MESH = Mesh.parse("dp=2")


def hung_job() -> Job:
    """Two calls that are complete, a message, and one that rank 1 did not join."""
    job = Job(2)
    job.call()
    job.now_ns += 30 * MILLISECOND_NS
    job.call("broadcast_", root=0)
    job.point_to_point(0, 1)
    job.call(without={1}, done=False)
    return job


def written(logs: Mapping[int, RankLog], folder: Path, how: str) -> Path:
    folder.mkdir()
    if how == "chakra":
        chakra.write_traces(logs, folder, last=100)
    else:
        flight_recorder.write_dumps(logs, folder, last=100)
    return folder


def graph_of(folder: Path, *, as_recorded: bool = False, step: int | None = None) -> JobGraph:
    return build_graph(GraphRequest(run=folder, mesh=MESH, as_recorded=as_recorded, step=step))


def calls_in(graph: JobGraph) -> list[int]:
    """Of each class."""
    return [int((each.entries.kind == Kind.COLLECTIVE).sum()) for each in graph.classes]


@pytest.mark.parametrize("how", ["chakra", "flight-recorder"])
@pytest.mark.parametrize("as_recorded", [False, True])
def test_files_without_steps_are_one_iteration(tmp_path: Path, how: str, as_recorded: bool) -> None:
    graph = graph_of(written(hung_job().logs, tmp_path / "files", how), as_recorded=as_recorded)
    assert all(calls >= 2 for calls in calls_in(graph))
    assert any("every rank completed are one iteration" in doubt for doubt in graph.origin.doubts)
    assert any("clocks are taken to be the same" in doubt for doubt in graph.origin.doubts) == as_recorded
    assert all(truth.iteration_ns > 30 * MILLISECOND_NS for truth in graph.origin.truths)


def test_a_call_that_a_member_did_not_complete_is_left_out() -> None:
    logs, said = one_iteration(hung_job().logs)
    assert [[call.name for call in log.collectives] for log in logs.values()] == [
        ["all_reduce", "broadcast", "send"], ["all_reduce", "broadcast", "recv"],
    ]  # fmt: skip
    assert any(line.startswith("1 call,") for line in said)
    assert [log.steps[0].time_ns for log in logs.values()] == [
        c.collectives[-1].time_completed_ns for c in logs.values()
    ]


def test_a_message_needs_both_its_ends() -> None:
    job = Job(2)
    job.call()
    job.point_to_point(0, 1, received=False)
    logs, _ = one_iteration(job.logs)
    assert [call.name for call in logs[0].collectives] == ["all_reduce"]


def test_a_call_before_the_begin_of_another_s_file_is_left_out() -> None:
    job = Job(2)
    job.call()
    job.call()
    job.logs[1].collectives = job.logs[1].collectives[1:]
    logs, said = one_iteration(job.logs)
    assert [call.identity.seq for call in logs[0].collectives] == [1]
    assert any(line.startswith("1 call,") for line in said)


def test_members_without_a_file_are_not_asked() -> None:
    job = hung_job()
    logs, _ = one_iteration({0: job.logs[0]})
    assert [call.name for call in logs[0].collectives] == ["all_reduce", "broadcast", "send"]


def test_nothing_in_common_is_an_error() -> None:
    job = Job(2)
    job.call(only={0})
    with pytest.raises(UsageError, match="rank 0 has no call that all"):
        one_iteration(job.logs)


def test_logs_with_steps_stay_as_they_are() -> None:
    job = Job(2)
    job.steps(2)
    logs, said = one_iteration(job.logs)
    assert logs == job.logs and said == ()


def test_groups_whose_members_nobody_lists_are_named(tmp_path: Path) -> None:
    folder = written(hung_job().logs, tmp_path / "files", "chakra")
    (folder / "comm_groups.json").unlink()
    with pytest.raises(UsageError, match="the members of group '1' are not known"):
        graph_of(folder)


def test_a_step_that_no_file_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="step 1 is not complete in the file of rank 0") as raised:
        graph_of(written(hung_job().logs, tmp_path / "files", "chakra"), step=1)
    assert "its last complete step is 0" in str(raised.value.hint)
