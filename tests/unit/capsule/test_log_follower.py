"""Following a log tells the same as reading it, without a value for each collective."""

from __future__ import annotations

import struct
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_log import TinyLog, write_training

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log import records
from prismdbg.capsule.log.batch import CLEAN_STEPS, GAPS_KEPT, NOTABLE_KEPT, Batch
from prismdbg.capsule.log.events import Event, Note, StepMark
from prismdbg.capsule.log.follower import LogFollower
from prismdbg.capsule.log.reader import LogReader, event_segments
from prismdbg.errors import CapsuleError
from prismdbg.model.collective import TensorMeta
from prismdbg.model.moment import Moment
from tests.unit.followed import followed

NAN = fmt.IssueFlag.SENT_NONFINITE


def batches(events: list[Event]) -> list[Batch]:
    return [event for event in events if isinstance(event, Batch)]


def write_deed(log: TinyLog, deed: str, open_: list[int]) -> None:
    match deed:
        case "issue":
            open_.append(log.issue(log.records, 1))
        case "send":
            open_.append(log.issue(log.records, 1, op="send", root=1, flags=fmt.IssueFlag.P2P))
        case "nan":
            open_.append(log.issue(log.records, 1, flags=NAN))
        case "complete" if open_:
            log.complete(open_.pop(0), status=fmt.Status.OK)
        case "fail" if open_:
            log.complete(open_.pop(), status=fmt.Status.FAILED)
        case "receive nan" if open_:
            log.complete(open_.pop(), flags=fmt.CompleteFlag.RECEIVED_NONFINITE)
        case "step":
            log.step(log.records)
        case "note":
            log.note("parked", moment="1.1")
        case "segment":
            log.next_segment()


DEEDS = ("issue", "send", "nan", "complete", "fail", "receive nan", "step", "note", "segment")


@given(deeds=st.lists(st.sampled_from(DEEDS), max_size=40))
def test_the_same_as_reading(deeds: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, open_ = TinyLog(Path(folder)), list[int]()
        for deed in deeds:
            write_deed(log, deed, open_)

        assert LogFollower(Path(folder)).poll() == followed(LogReader(Path(folder)).poll())


@given(deeds=st.lists(st.sampled_from(DEEDS), max_size=40), often=st.integers(1, 5))
def test_reading_often_tells_the_same_in_parts(deeds: list[str], often: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, open_ = TinyLog(Path(folder)), list[int]()
        follower = LogFollower(Path(folder))
        parts: list[Event] = []
        for number, deed in enumerate(deeds):
            write_deed(log, deed, open_)
            if number % often == 0:
                parts += follower.poll()
        parts += follower.poll()

        whole = LogFollower(Path(folder)).poll()
        assert [e for e in parts if not isinstance(e, Batch)] == [e for e in whole if not isinstance(e, Batch)]
        given_open = {c.record_id: c for batch in batches(parts) for c in batch.open}
        closed = {record_id for batch in batches(parts) for record_id in batch.closed}
        assert given_open.keys() - closed == {c.record_id for batch in batches(whole) for c in batch.open}
        assert closed <= given_open.keys()
        for name in ("reached", "issued_ns"):
            assert merged(batches(parts), name) == merged(batches(whole), name)
        assert [gap for b in batches(parts) for gap in b.gaps] == [gap for b in batches(whole) for gap in b.gaps]
        assert sum(sum(b.waited_ns.values()) for b in batches(parts)) == sum(
            sum(b.waited_ns.values()) for b in batches(whole)
        )
        lasts = [batch.last for batch in batches(parts) if batch.last is not None]
        assert lasts[-1:] == [batch.last for batch in batches(whole) if batch.last is not None]


def merged(parts: list[Batch], name: str) -> dict[object, int]:
    found: dict[object, int] = {}
    for batch in parts:
        for key, value in getattr(batch, name).items():
            found[key] = max(found.get(key, -1), value)
    return found


def test_what_happened_before_a_mark_is_told_before_it(tmp_path: Path) -> None:
    write_training(tmp_path, steps=2, per_step=3)

    kinds = [type(event) for event in LogFollower(tmp_path).poll()[1:]]

    assert kinds == [Batch, StepMark, Batch, StepMark, Batch]


def test_a_call_on_a_device_is_no_wait(tmp_path: Path) -> None:
    """It is issued and left."""
    log = TinyLog(tmp_path)
    for step, device in enumerate(("cpu", "cuda:0 stream 3", "cuda:0")):
        log.complete(log.issue(step, 1, device=device))

    (batch,) = LogFollower(tmp_path).poll()

    assert isinstance(batch, Batch) and batch.waited_ns == {0: 1000}


def test_a_job_that_issues_nothing_is_told_in_nothing(tmp_path: Path) -> None:
    write_training(tmp_path)
    follower = LogFollower(tmp_path)
    follower.poll()

    assert follower.poll() == []


def test_a_batch_is_bounded_whatever_was_issued(tmp_path: Path) -> None:
    log = TinyLog(tmp_path, segment_bytes=1 << 18)
    for number in range(2 * GAPS_KEPT):
        log.complete(log.issue(0, number + 1, flags=NAN))

    (batch,) = LogFollower(tmp_path).poll()

    assert isinstance(batch, Batch)
    assert len(batch.gaps) == GAPS_KEPT and batch.gaps[-1][2] == 2 * GAPS_KEPT - 1  # the newest
    assert [c.record_id for c in batch.notable] == list(range(NOTABLE_KEPT))  # the oldest


@pytest.mark.parametrize("function", ["_forward_metadata_inference", "PipelineStage._shape_inference"])
def test_a_nan_with_which_pipelining_learns_shapes_is_none(tmp_path: Path, function: str) -> None:
    """torch runs each stage once on memory that nobody has written, whose tensor-parallel calls send it."""
    log = TinyLog(tmp_path, segment_bytes=1 << 18)
    learns = log.stack(("/job/model.py", 3, "forward"), ("/x/torch/distributed/pipelining/stage.py", 9, function))
    for number in range(2 * NOTABLE_KEPT):
        call = log.issue(0, number + 1, flags=NAN, stack=learns)
        log.complete(call, flags=fmt.CompleteFlag.RECEIVED_NONFINITE)
    follower = LogFollower(tmp_path)
    (batch,) = batches(follower.poll())
    assert not batch.notable and not batch.nonfinite

    trains = log.stack(
        ("/job/model.py", 3, "forward"), ("/x/torch/distributed/pipelining/stage.py", 12, "forward_one_chunk")
    )
    call = log.issue(0, 2 * NOTABLE_KEPT + 1, flags=NAN, stack=trains)
    (batch,) = batches(follower.poll())
    assert [each.record_id for each in batch.notable] == [call] and batch.nonfinite


def test_once_the_first_nans_are_told_the_others_cost_nothing(tmp_path: Path) -> None:
    """A job goes on with NaN in every collective: whoever follows it must not fall behind."""
    log, follower = TinyLog(tmp_path, segment_bytes=1 << 18), LogFollower(tmp_path)
    told = 0
    for step in range(4):
        for number in range(NOTABLE_KEPT // 2):
            log.complete(log.issue(step, number + 1, flags=NAN), flags=fmt.CompleteFlag.RECEIVED_NONFINITE)
        log.step(step + 1)
        told += sum(len(batch.notable) for batch in batches(follower.poll()))
    assert told == NOTABLE_KEPT


@pytest.mark.parametrize("source", [fmt.StepSource.OPTIMIZER, fmt.StepSource.SKIPPED_BY_SCALER])
def test_after_a_skipped_step_or_clean_ones_the_first_nans_are_told_again(
    tmp_path: Path, source: fmt.StepSource
) -> None:
    log, follower = TinyLog(tmp_path, segment_bytes=1 << 18), LogFollower(tmp_path)

    def step(number: int, source: fmt.StepSource, flags: int) -> list[Batch]:
        for collective in range(1, NOTABLE_KEPT + 2):
            log.complete(log.issue(number, collective, flags=flags))
        log.step(number + 1, source)
        return batches(follower.poll())

    def told(found: list[Batch]) -> int:
        return sum(len(batch.notable) for batch in found)

    assert told(step(0, source, NAN)) == NOTABLE_KEPT
    clean = 0 if source is fmt.StepSource.SKIPPED_BY_SCALER else CLEAN_STEPS
    for number in range(1, clean):
        assert not any(batch.nonfinite for batch in step(number, source, fmt.IssueFlag.HAS_FINGERPRINT))
    if clean:
        step(clean, source, fmt.IssueFlag.HAS_FINGERPRINT)
    again = step(clean + 1, source, NAN)
    assert told(again) == NOTABLE_KEPT and any(batch.nonfinite for batch in again)
    more = step(clean + 2, fmt.StepSource.OPTIMIZER, NAN)
    assert told(more) == (0 if clean else NOTABLE_KEPT) and any(batch.nonfinite for batch in more)


def test_damage_is_named_after_all_before_it(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    log.issue(0, 1)
    log.append(fmt.Kind.ISSUE, b"too short")
    follower = LogFollower(tmp_path)

    (batch,) = follower.poll()

    assert isinstance(batch, Batch) and batch.last is not None
    assert len(event_segments(tmp_path)) == 1
    with pytest.raises(CapsuleError, match="damaged at offset"):
        follower.poll()


def test_ten_thousand_collectives_a_second_are_kept_up_with(tmp_path: Path) -> None:
    """By the time of the processor, so that a busy machine counts for nothing."""
    log = TinyLog(tmp_path, segment_bytes=4 << 20)
    for number in range(10_000):
        log.complete(log.issue(number // 10, number % 10))
    follower = LogFollower(tmp_path)
    began = time.process_time()
    follower.poll()
    assert time.process_time() - began < 1.0


def uneven(log: TinyLog, number: int) -> int:
    """A list of its own each time, as that of an all_to_all whose parts differ."""
    return log.issue(0, number, op="alltoall_", inputs=[TensorMeta((number, part), "float32") for part in (1, 2)])


def test_lists_of_tensors_that_differ_in_each_call_are_followed_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_LISTED_TENSORS", 8)
    monkeypatch.setattr(records, "MOST_RECENT", 8)
    log, follower = TinyLog(tmp_path), LogFollower(tmp_path)
    for number in range(1, 50):
        log.complete(uneven(log, number))
        (batch,) = batches(follower.poll())
        assert batch.last is not None and batch.last.inputs[1].shape == (number, 2)
    assert sum(map(len, follower._records.lists._known.values())) <= 8


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_call_that_cannot_be_decoded_hides_nothing_else(tmp_path: Path, is_complete: bool) -> None:
    """It is found only when it is given, after all has been read."""
    log = TinyLog(tmp_path)
    log.complete(log.issue(0, 1))  # with the texts that they have in common
    before_reduce_op = fmt.RECORD.size + struct.calcsize(fmt.ISSUE.format[: fmt.ISSUE.format.index("B")])
    at = log.offset + before_reduce_op
    record = log.issue(0, 2)
    log.write(at, bytes([250]))
    follower = LogFollower(tmp_path)
    if is_complete:
        log.complete(record)
    log.note("incident", text="not today")
    assert [event.kind for event in follower.poll() if isinstance(event, Note)] == ["incident"]
    with pytest.raises(CapsuleError, match="unknown reduce operator 250"):
        follower.poll()
    log.complete(log.issue(0, 3))
    (batch,) = batches(follower.poll())
    assert batch.last is not None and batch.last.moment == Moment(0, 3) and follower.poll() == []
