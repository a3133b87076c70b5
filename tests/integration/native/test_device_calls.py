"""When a collective on a device is complete: of a backend that answers as NCCL does, with tensors that Python made.

A real device and NCCL are tried by `make gpu`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from native_ranks import run_job

from prismdbg.capsule.log.events import Note
from prismdbg.capsule.log.reader import read_payload
from prismdbg.jobs.injection import cache_dir
from prismdbg.log.columns import read_columns
from prismdbg.model.collective import Collective, State
from tests import fake_nccl

RECEIVED = b"\x07" * 4


@pytest.fixture(scope="module")
def built() -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    if not hasattr(dist.AllreduceOptions(), "asyncOp"):
        pytest.skip("in this torch every call has a Work")
    return fake_nccl.built(compiler, cache_dir())


@dataclass(frozen=True, slots=True)
class First:
    """What the first of two ranks reported, and its log."""

    found: Any
    calls: list[Collective]
    received: list[bytearray | None]
    on_device: list[bool]
    notes: list[Note]


@pytest.fixture
def first(tmp_path: Path, built: Path) -> Callable[..., First]:
    def run(scenario: str, kernels: str = "native") -> First:
        (tmp_path / scenario).mkdir()
        (one,) = run_job(tmp_path / scenario, "on_device", 1, scenario, str(built), kernels)
        report, log = one.report(), one.log()
        calls = log.collectives
        assert report["lost"] == ""
        kept = [read_payload(one.folder, c.payload) if c.payload else None for c in calls]
        return First(report["found"], calls, kept, read_columns(one.folder).on_device.tolist(), log.notes)

    return run


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_a_call_that_is_not_asynchronous_is_complete_when_it_returns(first: Callable[..., First], kernels: str) -> None:
    one = first("sync", kernels)
    assert one.found == [] and one.received == [RECEIVED]


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_a_work_that_is_only_polled_ends_its_call(first: Callable[..., First], kernels: str) -> None:
    one = first("polled", kernels)
    assert one.found == [[0, 1], True, [1]]
    assert one.received == [None, None], "a poll does not wait for the copy; nothing says when the second was complete"


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_a_work_without_tensors_is_complete_when_the_backend_says_so(first: Callable[..., First], kernels: str) -> None:
    assert first("synchronized", kernels).found == [[0], []]


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_a_barrier_that_is_waited_for_holds_the_host(first: Callable[..., First], kernels: str) -> None:
    assert first("barrier_waits", kernels).found == "the peer is gone"


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_the_log_says_for_which_device_a_barrier_is(first: Callable[..., First], kernels: str) -> None:
    """Whoever compares how long hosts wait leaves it out. It has no tensors for all that."""
    one = first("barriers", kernels)
    assert one.on_device == [True, False] and not any(call.is_on_device for call in one.calls)


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_an_asynchronous_call_is_open_and_unread_until_it_is_waited_for(
    first: Callable[..., First], kernels: str
) -> None:
    one = first("asynchronous", kernels)
    assert one.found == [[0, 1], 0, []] and one.received == [RECEIVED, RECEIVED]


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_a_work_that_cpp_waits_for_ends_its_call(first: Callable[..., First], kernels: str) -> None:
    one = first("functional", kernels)
    assert one.found == [[0], []] and one.received == [RECEIVED]


@pytest.mark.parametrize(("kernels", "received"), [("native", None), ("python", RECEIVED)])
def test_a_work_whose_future_is_taken_ends_its_call(
    first: Callable[..., First], kernels: str, received: bytes | None
) -> None:
    one = first("by_future", kernels)
    assert one.found == [[0], []] and one.received == [received]
    told = [str(note.data["text"]) for note in one.notes if note.kind == "not_kept"]
    assert [text.startswith("data received in 1 calls or more was not kept") for text in told] == [True] * (
        not received
    )


def test_what_is_received_is_kept_however_many_works_cpp_holds(first: Callable[..., First]) -> None:
    """Of the Python kernels: complete works that nothing in Python holds are given up, but not these."""
    one = first("many_functional", "python")
    assert one.found == [] and one.received == [RECEIVED] * 100


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_a_work_that_torch_registered_is_there_to_be_waited_for(first: Callable[..., First], kernels: str) -> None:
    one = first("many_in_the_registry", kernels)
    assert one.found == [] and len(one.calls) == 100


@pytest.mark.parametrize("kernels", ["native", "python"])
@pytest.mark.parametrize(
    ("scenario", "held"),
    [
        ("waited_in_the_registry", 0),
        ("synchronized_in_the_registry", 0),
        ("by_future_in_the_registry", 100),
    ],
)
def test_torch_and_the_program_may_both_wait_for_a_work(
    first: Callable[..., First], scenario: str, held: int, kernels: str
) -> None:
    """As of a backend's own work, torch no longer holds it once it was waited for; it does where a future was taken."""
    assert first(scenario, kernels).found == [held, 0, []]


@pytest.mark.parametrize("kernels", ["native", "python"])
@pytest.mark.parametrize("scenario", ["waited_out_of_the_registry", "waited_in_another_thread"])
def test_torch_may_wait_for_a_work_that_it_registered_before(
    first: Callable[..., First], scenario: str, kernels: str
) -> None:
    assert first(scenario, kernels).found == [0, []]


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_what_torch_no_longer_registers_is_let_go(first: Callable[..., First], kernels: str) -> None:
    assert first("many_waited_out_of_the_registry", kernels).found == 0


@pytest.mark.parametrize("kernels", ["native", "python"])
@pytest.mark.parametrize("scenario", ["functional_of_two", "functional_of_two_threads"])
def test_a_work_of_two_tensors_is_waited_for_twice(first: Callable[..., First], scenario: str, kernels: str) -> None:
    one = first(scenario, kernels)
    assert one.found == [0, []] and len(one.calls) == 1


@pytest.mark.parametrize(("kernels", "most"), [("native", 0), ("python", 2)])
def test_works_that_the_program_never_waits_for_are_let_go(
    first: Callable[..., First], kernels: str, most: int
) -> None:
    calls, tensors = first("dropped", kernels).found
    assert calls <= most and tensors <= most


@pytest.mark.parametrize("kernels", ["native", "python"])
@pytest.mark.parametrize("scenario", ["polled_and_dropped", "polled_and_dropped_of_the_group"])
def test_a_work_that_was_seen_complete_keeps_no_tensor(
    first: Callable[..., First], scenario: str, kernels: str
) -> None:
    assert first(scenario, kernels).found is False


def test_nothing_is_read_while_a_graph_captures(first: Callable[..., First]) -> None:
    """Of the Python kernels: the driver tells the native ones (`tests/gpu`)."""
    one = first("captured", "python")
    assert one.found == [0, []] and one.received == [None, None]


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_calls_that_are_issued_together_are_complete_when_all_are_issued(
    first: Callable[..., First], kernels: str
) -> None:
    one = first("sync_together", kernels)
    assert one.found == [[0, 1], []] and one.received == [RECEIVED, RECEIVED]


def test_messages_that_are_issued_together_are_open_until_they_are_waited_for(first: Callable[..., First]) -> None:
    one = first("messages_together")
    assert one.found == [[0, 1], []], "and a later call is none of them"
    assert [call.name for call in one.calls] == ["send", "recv", "all_reduce"]
    assert one.received == [None, RECEIVED, RECEIVED]


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_calls_that_a_block_takes_out_are_complete_at_its_end(first: Callable[..., First], kernels: str) -> None:
    one = first("fast", kernels)
    assert [call.name for call in one.calls] == ["all_reduce_coalesced"]
    assert one.found == [[0], [], []] and one.received == [2 * RECEIVED]


@pytest.mark.parametrize(("kernels", "after", "received"), [("native", [0], 2 * RECEIVED), ("python", [], None)])
def test_the_work_of_a_block_ends_what_it_takes_out(
    first: Callable[..., First], kernels: str, after: list[int], received: bytes | None
) -> None:
    one = first("fast_async", kernels)
    assert one.found == [[0], after, []] and one.received == [received]


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_a_block_without_a_device_issues_nothing_together(first: Callable[..., First], kernels: str) -> None:
    one = first("fast_alone", kernels)
    assert one.found == [[], []] and one.received == [2 * RECEIVED]
    one = first("alone_in_a_block", kernels)
    assert one.found == [] and one.received == [RECEIVED]


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_calls_of_nested_groups_are_complete_when_the_outermost_ends(first: Callable[..., First], kernels: str) -> None:
    one = first("nested", kernels)
    assert one.found == [[0, 1], [0, 1, 2], []] and one.received == [RECEIVED] * 3
    one = first("nested_messages", kernels)
    assert one.found == [[0], []] and one.received == [None]


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_a_block_that_an_exception_left_has_no_call_of_a_later_one(first: Callable[..., First], kernels: str) -> None:
    one = first("body_raises", kernels)
    assert one.found == [[0], [1], []] and one.received == [None, RECEIVED]
    assert [note.data["text"] for note in one.notes if note.kind == "not_ended"] == [
        "a coalescing block of group 0 was never ended, perhaps because of an exception: "
        "the ends of its calls (1) are unknown"
    ]


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_a_block_that_an_exception_left_does_not_end_with_the_one_around_it(
    first: Callable[..., First], kernels: str
) -> None:
    one = first("inner_body_raises", kernels)
    assert one.found == [[0, 1], [], []] and one.received == [RECEIVED, None, RECEIVED]
    assert len([note for note in one.notes if note.kind == "not_ended"]) == 1


def test_the_work_of_several_calls_does_not_say_who_sent(first: Callable[..., First]) -> None:
    one = first("any_source_together")
    assert one.found == [] and one.received == [RECEIVED, RECEIVED]
    assert [call.source_rank for call in one.calls] == [-1, -1]


def test_a_rescued_work_fills_what_all_of_its_calls_receive(first: Callable[..., First]) -> None:
    filled, error = first("rescued").found
    assert filled[:3] == [0, 1, 2] and 5 not in filled, "the second Work lacks what one of its calls receives"
    assert error == "the peer is gone"


@pytest.mark.parametrize("kernels", ["native", "python"])
def test_calls_that_cannot_be_issued_together_have_failed(first: Callable[..., First], kernels: str) -> None:
    one = first("end_raises", kernels)
    assert one.found == ["the peer is gone", []]
    assert [call.state for call in one.calls] == [State.FAILED, State.FAILED]
    assert all(call.failure is not None and "the peer is gone" in call.failure.text for call in one.calls)


def test_the_python_kernels_keep_nothing_of_calls_that_have_one_work(first: Callable[..., First]) -> None:
    """What they receive is not there yet."""
    one = first("messages_together", "python")
    assert one.found == [[], []] and one.received[:2] == [None, None]
