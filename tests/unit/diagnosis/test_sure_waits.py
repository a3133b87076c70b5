"""What is no wait, no group, no majority, and no certainty: histories in which a rank would be accused for nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from test_diagnosis_hang import after

from prismdbg.diagnosis.clocks import clock_offsets, unknown_clocks
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.hang import NS_PER_S
from prismdbg.diagnosis.mismatches import Mismatch
from prismdbg.diagnosis.stops import Stopped
from prismdbg.diagnosis.verdict import Certainty, Verdict
from prismdbg.diagnosis.why import diagnose
from prismdbg.log.columns import read_columns
from prismdbg.log.rank_log import columns_of, rank_log
from prismdbg.model.collective import Failure, Frame, Group, State
from tests.tiny_log import TinyLog
from tests.unit.logs import MILLISECOND_NS, Job, Tensors, put_on_device

MINUTE_NS = 60 * NS_PER_S
SAVED = Frame("/job/train.py", 99, "save")


def verdicts(job: Job, after_ns: int = MINUTE_NS, **more: object) -> tuple[Verdict, ...]:
    evidence = Evidence(logs=job.logs, world_size=len(job.ranks), ended_wall_ns=job.now_ns + after_ns)
    return diagnose(replace(evidence, **more)).verdicts  # type: ignore[arg-type]


def stops(job: Job, after_ns: int = MINUTE_NS, **more: object) -> list[Stopped]:
    return [verdict for verdict in verdicts(job, after_ns, **more) if isinstance(verdict, Stopped)]


def test_a_rank_that_posted_a_receive_and_went_on_does_not_wait_in_it() -> None:
    """It stands somewhere in its own code: the ranks do not wait for each other."""
    job = Job(2)
    job.steps(5)
    job.receive(1, 0)
    job.call()
    job.call(only={0}, done=False)
    first, *others = stops(job)
    assert first.stall.waiting_ranks == (0,) and first.stall.never_came == (1,) and not first.circle
    assert first.absent[0].did == "its log shows no error"
    assert all(other.certainty is not Certainty.CERTAIN for other in others)


@pytest.mark.parametrize("is_running", [True, False])
def test_a_thread_that_listens_for_messages_is_no_hang(is_running: bool) -> None:
    job = Job(3)
    job.steps(1)
    job.receive(0, 1, thread=9)
    job.steps(200, lasting_ns=1000 * MILLISECOND_NS)
    assert not stops(job, 2 * MILLISECOND_NS, is_running=is_running)
    assert not after(job, 0.001)


def test_a_program_that_waits_for_a_message_hangs() -> None:
    job = Job(3)
    job.steps(5)
    job.receive(0, 1)
    (report,) = after(job, 31)
    assert (report.stall.waiting_ranks, report.stall.never_came) == ((0,), (1,))
    (stop,) = stops(job)
    assert stop.certainty is Certainty.CERTAIN and stop.stall.never_came == (1,)


def test_messages_of_unknown_source_are_not_compared() -> None:
    """The first is received from whoever sends, the second from its sender: each end numbers them in its own way."""
    job = Job(2)
    job.steps(2)
    for _ in range(2):
        job.point_to_point(0, 1, received=False)
    job.calls(0)[-2] = replace(job.calls(0)[-2], inputs=Tensors(shape=(1,)).metas)
    job.receive(1, -1, op="recv_any_source_", done=True)
    job.receive(1, 0, done=True)
    job.exits()
    assert not verdicts(job)


def test_who_waits_for_a_message_of_any_rank_may_hang() -> None:
    job = Job(3)
    job.point_to_point(2, 0)
    job.receive(0, -1, op="recv_any_source_")
    (stop,) = stops(job, 10 * MINUTE_NS, is_running=True)
    assert (stop.certainty, stop.ranks, stop.stall.unknown) == (Certainty.LIKELY, (1, 0), ())
    assert stop.text.endswith("any rank to 0 tag 0 #0, 0.2) for 600 s; rank 1 has sent it no message")
    assert stop.lines[0].startswith("rank 1 has sent it no message: its log shows no error")
    assert not after(job, 600), "a rank that serves others may wait for a message as long as it likes"


@pytest.mark.parametrize("why", ["all have sent", "it only listens", "it is not waited for", "it is short"])
def test_and_it_may_not(why: str) -> None:
    job = Job(3)
    for rank in (1, 2) if why == "all have sent" else (2,):
        job.point_to_point(rank, 0)
    job.receive(0, -1, op="recv_any_source_", thread=9)
    if why == "it only listens":
        job.call()
    if why == "it is not waited for":
        job.calls(0)[-1] = replace(job.calls(0)[-1], is_async=True)
    found = stops(job, (MILLISECOND_NS if why == "it is short" else 10 * MINUTE_NS))
    assert all(stop.certainty is Certainty.HINT for stop in found) and bool(found) is (why == "it is short")


def test_groups_of_one_name_and_other_members_are_not_compared() -> None:
    job = Job(4)
    job.steps(2)
    for ranks, shape in (((0, 1), (4,)), ((2, 3), (8,))):
        for rank in ranks:
            job.logs[rank].groups["h"] = Group(name="h", ranks=ranks, desc="undefined", backend="gloo")
        for _ in range(3):
            job.call(group="h", only=ranks, tensors=Tensors(shape=shape))
    job.exits()
    assert not verdicts(job)


def test_a_rank_whose_group_of_that_name_is_another_one_is_not_accused() -> None:
    job = Job(3)
    job.steps(2)
    job.group("h", (0, 1))
    job.logs[1].groups["h"] = Group(name="h", ranks=(1, 2), desc="", backend="gloo")
    job.call(group="h", only={0}, done=False)
    (stop,) = stops(job)
    assert (stop.stall.never_came, stop.stall.unknown) == ((), (1,))


@pytest.mark.parametrize("newest", [None, 256])
def test_what_a_log_no_longer_has_is_not_known(newest: int | None, tmp_path: Path) -> None:
    logs = {}
    for rank in range(3):
        log = TinyLog(tmp_path / str(rank), rank)
        log.group("0", (0, 1, 2), "default_pg")
        log.group("train", (1, 2))
        joined = log.issue(0, 1, op="gather_", root=0) if rank != 2 else -1
        if rank == 1:
            log.complete(joined)
        for step in range(1000 if rank else 0):
            log.complete(log.issue(step, 2, group="train", seq=step))
            log.step(step + 1)
        logs[rank] = rank_log(read_columns(log.folder, newest_rows=newest))
    ended_ns = max(log.wall_offset_ns for log in logs.values()) + 1000 * NS_PER_S
    found = diagnose(Evidence(logs=logs, world_size=3, ended_wall_ns=ended_ns)).verdicts
    (stop,) = (verdict for verdict in found if isinstance(verdict, Stopped))
    assert (stop.stall.never_came, stop.stall.unknown) == (((2,), ()) if newest is None else ((), (1, 2)))


@pytest.mark.parametrize("state", [State.FAILED, State.SCHEDULED])
def test_a_rank_that_came_when_the_others_had_waited_for_long_is_named(state: State) -> None:
    job = Job(3)
    job.steps(3)
    job.call(late_ns={2: 1800 * NS_PER_S}, done=False)
    for rank in job.ranks:
        call = job.calls(rank)[-1]
        ended_ns = job.now_ns if state is State.FAILED else None
        job.calls(rank)[-1] = replace(call, state=state, time_completed_ns=ended_ns)
    if state is State.SCHEDULED:
        put_on_device(job)
    (stop,) = stops(job)
    assert stop.text.endswith("; rank 2 joined it 1800 s after the others") and stop.ranks[0] == 2


@pytest.mark.parametrize("is_running", [True, False])
def test_a_pause_that_was_as_long_before_is_no_hang(is_running: bool) -> None:
    job = Job(4)
    for step in range(40):
        job.steps(1)
        if step % 10 == 9:
            job.call("barrier", late_ns={0: 30 * NS_PER_S}, frames=(SAVED,))
    job.call("barrier", without={0}, done=False, frames=(SAVED,))
    assert [stop.certainty for stop in stops(job, 5 * NS_PER_S, is_running=is_running)] == (
        [] if is_running else [Certainty.HINT]
    )
    assert stops(job, 300 * NS_PER_S, is_running=is_running)[0].certainty is Certainty.CERTAIN


def test_calls_that_do_not_match_are_not_called_one() -> None:
    job = Job(4)
    job.steps(3)
    job.call(only={0}, done=False)
    job.call("barrier", only={2, 3}, done=False)
    (stop,) = stops(job)
    assert "in calls that do not match" in stop.text and "rank 1 never joined it" in stop.text
    assert "ranks 2 and 3 in barrier" in stop.text and "rank 0 in all_reduce" in stop.text


def test_most_of_a_few_logs_are_no_majority_of_a_large_group() -> None:
    job = Job(8)
    job.steps(3)
    job.call("_allgather_base_", without={0, 1}, done=False)
    job.call(only={0, 1}, done=False)
    for rank in range(3, 8):
        del job.logs[rank]
    (found,) = (verdict for verdict in verdicts(job) if isinstance(verdict, Mismatch))
    assert found.text.startswith("the ranks do not agree in group world #3: ")


def test_a_call_that_was_refused_is_no_wait() -> None:
    job = Job(3)
    job.steps(3)
    job.call(only={0}, done=False)
    failure = Failure("RuntimeError", "Invalid scalar type", at_issue=True)
    job.calls(0)[-1] = replace(job.calls(0)[-1], state=State.FAILED, time_completed_ns=job.now_ns, failure=failure)
    job.raises(0, "RuntimeError", "Invalid scalar type")
    assert not stops(job, 0)


def test_of_a_group_that_is_not_described_nobody_is_said_to_have_come() -> None:
    job = Job(3)
    job.steps(3)
    job.call(without={2}, done=False)
    for log in job.logs.values():
        log.groups.clear()
    assert [stop.text.partition("; ")[2] for stop in stops(job)] == ["the log does not say who else is in the group"]


def test_a_mismatch_of_collectives_does_not_tell_of_a_stop_in_messages_of_the_same_number() -> None:
    job = Job(2)
    job.call(only={0})
    job.call(only={1}, tensors=Tensors(dtype="int32"))
    job.steps(3)
    job.point_to_point(0, 1, done=False)
    assert {verdict.kind for verdict in verdicts(job)} == {"mismatch", "stopped"}


def test_by_clocks_that_are_not_known_no_wait_is_measured() -> None:
    job = Job(2)
    job.steps(7)
    job.logs[1].wall_offset_ns = MINUTE_NS
    columns, nodes = {rank: columns_of(log) for rank, log in job.logs.items()}, {0: "a", 1: "b"}
    assert (clock_offsets(columns, nodes)["b"], unknown_clocks(columns, nodes)) == (0, {"b"})
    job.call(only={1}, done=False)
    assert [stop.waited_ns for stop in stops(job, nodes=nodes, unknown_clocks=frozenset({"b"}))] == [None]
