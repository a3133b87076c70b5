"""What is concluded where tensors are on a device: a call is issued and left, and its end is written later."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.stragglers import find_stragglers, unknown_waits, waits_by_group
from prismdbg.diagnosis.nonfinite import Birth, FirstNonfinite
from prismdbg.diagnosis.stops import find_stops
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.diagnosis.why import diagnose
from prismdbg.exporters.perfetto_waits import Arrivals
from tests.unit.logs import MILLISECOND_NS, WORLD, Job, leave_open, put_on_device

MINUTE_NS = 60_000 * MILLISECOND_NS


def verdicts(job: Job, **more: Any) -> list[tuple[Certainty, str]]:
    evidence = Evidence(logs=job.logs, world_size=len(job.logs), ended_wall_ns=job.now_ns + MINUTE_NS, **more)
    return [(verdict.certainty, verdict.text) for verdict in diagnose(evidence).verdicts]


def held_up(on_device: bool) -> Job:
    """Rank 2 is gone before the fourth call of step 20, in which the others wait."""
    job = Job(4)
    job.steps(20)
    for _ in range(3):
        job.call()
    job.call(without={2}, done=False)
    if on_device:
        put_on_device(job)
        leave_open(job, 2, 2)
    return job


def ahead(on_device: bool, since: int = 0) -> Job:
    """The hosts of all ranks but 0 run 200 ms ahead from a step on, for rank 0 alone reads its loss in each step."""
    job = Job(4)
    job.steps(60, lasting_ns=20 * MILLISECOND_NS)
    for rank in (1, 2, 3):
        log = job.logs[rank]
        log.collectives = [
            replace(call, time_created_ns=call.time_created_ns - 20 * MILLISECOND_NS * min(max(0, step), 10))
            for call in log.collectives
            for step in [call.moment.step - since]
        ]
    job.exits()
    if on_device:
        put_on_device(job)
    return job


@pytest.mark.parametrize(
    ("backend", "on_device", "late"),
    [
        ("gloo", False, 1),
        ("gloo", True, 1),  # the program has named a device
        ("cpu:gloo,cuda:gloo", True, 1),
        ("", True, 0),
        ("mpi", False, 1),
        ("nccl", False, 0),
        ("hccl", False, 0),
        ("cuda:nccl,xpu:xccl", False, 0),
        ("cpu:gloo,cuda:nccl", False, 1),
        ("cpu:gloo,cuda:nccl", True, 0),
    ],
)
def test_a_barrier_of_a_device_waits_for_its_own_device_first(backend: str, on_device: bool, late: int) -> None:
    """Rank 0 has read its loss before it, and so has waited for its device already."""
    job = Job(2)
    for log in job.logs.values():
        log.groups[WORLD] = replace(log.groups[WORLD], backend=backend)
    for _ in range(10):
        job.call("barrier", late_ns={0: 400 * MILLISECOND_NS})
    evidence = Evidence(logs=job.logs, world_size=2)
    for columns in evidence.columns.values():
        columns.on_device[:] = on_device
    assert len(find_stragglers(evidence)) == late
    assert unknown_waits(evidence, waits_by_group(evidence))[0] == (0 if late else 10)


@pytest.mark.parametrize("since", [0, 20])
def test_a_host_that_runs_ahead_of_its_device_waits_for_nobody(since: int) -> None:
    assert [text for _, text in verdicts(ahead(False, since)) if "rank 0" in text] != []
    job = ahead(True, since)
    assert verdicts(job) == []
    arrivals = Arrivals(job.logs, {rank: log.collectives for rank, log in job.logs.items()})
    assert arrivals.wait(1, job.logs[1].collectives[30]) is None


def test_a_killed_rank_waits_in_no_call_that_others_have_ended() -> None:
    gone = {"silent": frozenset({2}), "died_first": 2}
    assert verdicts(held_up(True), **gone) == verdicts(held_up(False), **gone)


def test_a_rank_that_raised_waits_nowhere() -> None:
    """It had issued a call and gone on; that nobody else issues it came of the exception."""
    job = Job(4)
    job.group("side", (2, 3))
    job.steps(20)
    job.call(group="side", only={2}, done=False)
    put_on_device(job)
    job.raises(2, "RuntimeError", "CUDA error: device-side assert triggered")
    raised = "rank 2 raised at 20.1: RuntimeError: CUDA error: device-side assert triggered"
    assert verdicts(job) == [(Certainty.CERTAIN, raised)]


def test_those_whose_backend_raised_have_followed() -> None:
    job = held_up(True)
    job.raises(2, "RuntimeError", "CUDA error: device-side assert triggered")
    for rank in (0, 1, 3):
        job.raises(rank, "DistBackendError", "NCCL watchdog timeout")
    first, waits = verdicts(job)
    assert first[0] is Certainty.CERTAIN and first[1].startswith("rank 2 raised at 20.3: RuntimeError")
    assert waits[1].startswith("ranks 0, 1 and 3 wait in all_reduce (group world #23")


@pytest.mark.parametrize("gone", [frozenset[int](), frozenset({1})])
def test_a_work_that_was_kept_and_never_waited_for_is_no_hang(gone: frozenset[int]) -> None:
    """Its rank went on: calls of later steps have ended, though the last of them have not."""
    job = Job(2)
    job.group("side", (0, 1))
    job.steps(2)
    job.call(group="side", only={0}, done=False)
    job.steps(5)
    put_on_device(job)
    leave_open(job, 0, 1)
    found = verdicts(job, silent=gone, died_first=next(iter(gone), None))
    assert not [text for _, text in found if "group side" in text]


def test_a_broadcast_that_all_others_have_ended_holds_nobody() -> None:
    job = Job(3)
    job.steps(3)
    job.call("broadcast_", root=0)
    put_on_device(job)
    leave_open(job, 2, 1)
    assert [text for _, text in verdicts(job, silent=frozenset({2}), died_first=2) if "wait" in text] == []
    leave_open(job, 1, 1)
    assert [text for _, text in verdicts(job, silent=frozenset({2}), died_first=2) if "wait" in text] != []


def first_nan(job: Job, **more: Any) -> FirstNonfinite:
    evidence = Evidence(logs=job.logs, world_size=len(job.logs), ended_wall_ns=job.now_ns + MINUTE_NS, **more)
    (found,) = (verdict for verdict in diagnose(evidence).verdicts if isinstance(verdict, FirstNonfinite))
    return found


def test_a_killed_sender_has_said_nothing_of_what_it_sent() -> None:
    job = Job(4)
    job.steps(5)
    job.call(sends_nan={2}, receives_nan=job.ranks)
    put_on_device(job)
    leave_open(job, 2, 1)
    found = first_nan(job, silent=frozenset({2}), died_first=2)
    assert (found.birth, found.suspects, found.certainty) == (Birth.UNSEEN, (2,), Certainty.LIKELY)
    assert found.text.startswith("the first NaN or Inf came from rank 2, whose data was not seen, in all_reduce")


def test_where_there_was_no_room_to_look_it_is_not_known_who_sent_it() -> None:
    job = Job(3)
    job.call(receives_nan=job.ranks)
    put_on_device(job)
    for rank in (0, 2):
        job.logs[rank].collectives[-1] = replace(job.logs[rank].collectives[-1], fingerprint=None)
    job.steps(2)
    assert first_nan(job).suspects == (0, 2)


@pytest.mark.parametrize("fingerprint", [17, None])
def test_where_all_was_looked_at_the_sum_is_not_finite(fingerprint: int | None) -> None:
    """Also if it was recorded without fingerprints."""
    job = Job(2)
    job.call(receives_nan=job.ranks)
    put_on_device(job)
    for log in job.logs.values():
        log.collectives = [replace(call, fingerprint=fingerprint) for call in log.collectives]
    assert first_nan(job).birth is Birth.REDUCED


def test_of_a_broadcast_only_the_root_can_have_sent_it() -> None:
    job = Job(3)
    job.call("broadcast_", root=1, receives_nan={0, 2})
    put_on_device(job)
    for log in job.logs.values():
        log.collectives = [replace(call, fingerprint=None) for call in log.collectives]
    job.steps(1)
    assert first_nan(job).suspects == (1,)


def test_a_rank_whose_log_ends_before_it_may_have_sent_it() -> None:
    job = Job(3)
    job.steps(2)
    job.call(receives_nan={0, 1})
    del job.calls(2)[-1]
    assert first_nan(job).suspects == (2,)


def test_an_end_that_is_told_late_makes_no_receiver_a_sender() -> None:
    """Rank 0 receives it on its GPU and sends it on from the CPU; the end on the GPU is written 0.8 ms late."""
    job = Job(2)
    job.steps(3)
    job.call(sends_nan={1}, receives_nan={0, 1})
    put_on_device(job)
    for log in job.logs.values():
        late = log.collectives[-1]
        log.collectives[-1] = replace(late, time_completed_ns=(late.time_completed_ns or 0) + 800_000)
    job.now_ns -= 700_000
    job.call(sends_nan={0, 1}, receives_nan={0, 1})
    found = first_nan(job)
    assert (found.call.rank, found.others, found.certainty) == (1, (), Certainty.CERTAIN)


@pytest.mark.parametrize("ms", [1, 5])
def test_ends_that_are_near_each_other_are_ordered_by_moment(ms: int) -> None:
    """Rank 1's end is told before rank 0's, whose call is an earlier one."""
    job = Job(4)
    job.group("a", (0, 2))
    job.group("b", (1, 3))
    job.call(group="a", sends_nan={0})
    job.call(group="b")
    job.call(group="b", sends_nan={1})
    put_on_device(job)
    early, late = job.logs[0].collectives, job.logs[1].collectives
    early[-1] = replace(early[-1], time_completed_ns=(late[-1].time_completed_ns or 0) + ms * MILLISECOND_NS)
    assert first_nan(job).ranks == ((0, 1) if ms == 1 else (1, 0))


def test_a_rank_without_an_optimizer_is_compared_by_time_alone() -> None:
    """Ranks 0 and 1 have no steps, as a frozen stage of a pipeline; rank 0 sends a NaN a second after rank 2 did."""
    job = Job(4)
    job.group("first", (0, 1))
    job.group("second", (2, 3))
    for _ in range(11):
        job.call(group="first")
        job.call(group="second")
        for rank in (2, 3):
            job.next_step(rank)
    job.call(group="second", sends_nan={2}, receives_nan={2, 3})
    job.now_ns += 1000 * MILLISECOND_NS
    job.call(group="first", sends_nan={0}, receives_nan={0, 1})
    found = first_nan(job)
    assert (found.ranks, found.certainty) == ((2, 0), Certainty.LIKELY)


def gone_on(*, holds_up: bool, came: bool = False) -> Job:
    """Rank 0 issues a call of the side group that rank 1 lacks, and goes on with steps of the world. The device has not
    come to the later call of the side group, or that has ended."""
    job = Job(2)
    job.group("side", (0, 1))
    job.steps(2)
    job.call(group="side", only=None if came else {0}, done=False)
    job.steps(2)
    job.call(group="side", only=None if came else {0}, done=not holds_up)
    job.steps(3)
    put_on_device(job)
    return job


def test_a_call_that_holds_up_a_later_one_of_its_group_was_not_left_behind() -> None:
    """The world's calls pass it by, on a stream of their own."""
    found = [text for _, text in verdicts(gone_on(holds_up=True)) if "group side" in text]
    assert len(found) == 1 and found[0].startswith("rank 0 waits in all_reduce (group side #0, 2.1) for ")
    assert found[0].endswith("rank 1 never joined it")


def test_a_call_that_a_later_one_of_its_group_has_passed_was_left_behind() -> None:
    assert [text for _, text in verdicts(gone_on(holds_up=False)) if "waits in" in text] == []


def test_works_that_all_members_kept_and_never_waited_for_are_no_hang() -> None:
    assert [text for _, text in verdicts(gone_on(holds_up=True, came=True)) if "group side" in text] == []


def calls_made(action: Callable[[], object]) -> int:
    made = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal made
        made += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return made


def test_what_deciding_stops_takes_grows_with_the_number_of_ranks() -> None:
    """Four times the ranks: 4 times the calls of functions, not 16 or 64 times."""

    def made(world: int) -> int:
        job = Job(world)
        job.steps(2)
        job.call(without={1}, done=False)
        put_on_device(job)
        leave_open(job, 1, 1)
        evidence = Evidence(logs=job.logs, world_size=world, ended_wall_ns=job.now_ns + MINUTE_NS)
        found: list[Any] = []
        calls = calls_made(lambda: found.extend(find_stops(evidence)))
        assert [verdict.stall.never_came for verdict in found] == [(1,)]
        return calls

    assert made(512) < 6 * made(128)
