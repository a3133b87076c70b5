"""Reading a rank's log: while it is written, after a kill, and when it is damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_log import FLOATS, TinyLog, write_training

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log import reader as log_reader
from prismdbg.capsule.log import records
from prismdbg.capsule.log.events import Completion, Event, Note, StepMark
from prismdbg.capsule.log.reader import LogReader, iter_logs, read_log, read_payload, read_payload_into, was_cut
from prismdbg.errors import CapsuleError
from prismdbg.log.columns import read_columns
from prismdbg.model.collective import Collective, Failure, Frame, Group, Identity, PayloadRef, State, TensorMeta
from prismdbg.model.moment import Moment
from prismdbg.model.sketch import Sketch


@pytest.mark.parametrize(
    ("text", "device", "stream"), [("cpu", "cpu", 0), ("cuda:1", "cuda:1", 0), ("cuda:1 stream 7", "cuda:1", 7)]
)
def test_device_and_stream(text: str, device: str, stream: int, tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    log.issue(0, 1, device=text)
    (collective,) = read_log(tmp_path).collectives
    assert (collective.stream, {t.device for t in (*collective.inputs, *collective.outputs)}) == (stream, {device})


def test_a_sketch_stands_behind_the_tensors(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    sketch = Sketch(2, 30.0, (1.0, -2.5, 3.0, 0.0))
    records = [log.issue(0, 1), log.issue(0, 2, sketch=sketch)]
    log.complete(records[1])
    assert [c.sketch for c in read_log(tmp_path).collectives] == [None, sketch]
    columns = read_columns(tmp_path)
    assert columns.tensors[0] == columns.tensors[1], "of equal tensors, with a sketch or without"
    assert columns.size_bytes[0] == columns.size_bytes[1]


def test_a_record_without_room_for_its_sketch_is_damaged(tmp_path: Path) -> None:
    TinyLog(tmp_path).issue(0, 1, flags=fmt.IssueFlag.HAS_FINGERPRINT | fmt.IssueFlag.HAS_SKETCH)
    with pytest.raises(CapsuleError, match="is damaged"):
        read_log(tmp_path)


def test_why_a_collective_failed_stands_in_front_of_its_end(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    first, second, third = log.issue(0, 1), log.issue(0, 2), log.issue(0, 3)
    log.note("failed", record_id=second, type="DistBackendError", text="gone", at_issue=True)
    log.complete(first)
    log.complete(second, status=fmt.Status.FAILED)
    log.complete(third, status=fmt.Status.FAILED)  # as an older recorder wrote it
    collectives = read_log(tmp_path).collectives
    assert [c.state for c in collectives] == [State.COMPLETED, State.FAILED, State.FAILED]
    assert [c.failure for c in collectives] == [None, Failure("DistBackendError", "gone", True), None]


def test_every_field_of_a_record(tmp_path: Path) -> None:
    log = TinyLog(tmp_path, rank=3)
    log.group("0", (1, 3), "mesh_tp")
    stack = log.stack(("train.py", 12, "step"), ("train.py", 40, "<module>"))
    scalar = TensorMeta((), "bfloat16")
    flags = fmt.IssueFlag.ASYNC | fmt.IssueFlag.SENT_NONFINITE | fmt.IssueFlag.HAS_FINGERPRINT
    record = log.issue(7, 2, stack=stack, inputs=(FLOATS, FLOATS, scalar), outputs=(), flags=flags, seq=9)
    log.complete(record, b"received")
    log.note("incident", text="nan")
    whole = read_log(tmp_path)
    assert (whole.rank, whole.pid, whole.wall_offset_ns) == (3, 4711, 10**18 - 10**9)
    assert whole.groups == {"0": Group(name="0", ranks=(1, 3), desc="mesh_tp", backend="gloo")}
    assert whole.notes == [Note("incident", 5, {"text": "nan"})]
    (collective,) = whole.collectives
    assert collective == Collective(
        record_id=0,
        moment=Moment(7, 2),
        identity=Identity("0", 9),
        op="allreduce_",
        group="0",
        is_p2p=False,
        is_async=True,
        root=-1,
        tag=0,
        reduce_op="SUM",
        timeout_ms=1000,
        inputs=(FLOATS, FLOATS, scalar),
        outputs=(),
        fingerprint=0xABC,
        sent_nonfinite=True,
        time_created_ns=2000,
        thread_id=77,
        frames=(Frame("train.py", 12, "step"), Frame("train.py", 40, "<module>")),
        state=State.COMPLETED,
        time_completed_ns=3000,
        payload=PayloadRef(0, 0, 8),
    )
    assert collective.payload is not None
    assert read_payload(tmp_path, collective.payload) == b"received"


def test_point_to_point_has_an_identity_of_its_own(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    log.issue(0, 1, op="recv_", root=1, seq=4, flags=fmt.IssueFlag.P2P)
    (collective,) = read_log(tmp_path).collectives
    assert collective.identity == Identity("0", 4, "recv_", 1, 0)
    assert collective.fingerprint is None


def test_lists_that_differ_in_each_call_are_read_however_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an all_to_all whose parts differ. The log itself is as large as they are."""
    monkeypatch.setattr(records, "MAX_LISTED_TENSORS", 8)
    log = TinyLog(tmp_path)
    for number in range(1, 50):
        log.complete(
            log.issue(0, number, op="alltoall_", inputs=[TensorMeta((number, part), "float32") for part in (1, 2)])
        )
    assert [record.inputs[1].shape for record in read_log(tmp_path).collectives] == [
        (number, 2) for number in range(1, 50)
    ]


def test_a_repeated_tensor_is_written_once(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    log.issue(0, 1, inputs=(FLOATS,), outputs=())
    data = bytearray(log.path.read_bytes())
    entry = data.rindex(fmt.TENSOR.pack(6, 1, 0, 1))
    data[entry : entry + fmt.TENSOR.size] = fmt.TENSOR.pack(6, 1, 0, 500)
    log.path.write_bytes(data)
    assert read_log(tmp_path).collectives[0].inputs == (FLOATS,) * 500


def test_polling_gives_what_is_new_in_order(tmp_path: Path) -> None:
    reader = LogReader(tmp_path)
    assert reader.poll() == []
    log = TinyLog(tmp_path)
    assert reader.poll() == []
    first = log.issue(0, 1)
    log.step(1)
    events = reader.poll()
    assert [type(event) for event in events] == [Collective, StepMark]
    assert reader.poll() == []
    log.complete(first)
    log.next_segment()
    log.issue(1, 1)
    events = reader.poll()
    assert [type(event) for event in events] == [Completion, Collective]
    assert isinstance(events[0], Completion)
    assert events[0].collective.moment == Moment(0, 1)
    assert reader.poll() == []


def test_a_writer_that_is_faster_is_not_chased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = TinyLog(tmp_path, segment_bytes=1 << 12)
    read, left = LogReader._read_segment, iter(range(10))

    def while_it_writes(reader: LogReader, path: Path, events: list[Event]) -> bool:
        if next(left, None) is not None:
            log.note("more")
            log.next_segment()
        return read(reader, path, events)

    monkeypatch.setattr(LogReader, "_read_segment", while_it_writes)
    assert len(read_log(tmp_path).notes) == 2, "of the segments that were there when the first one was read"
    reader = LogReader(tmp_path)
    notes = [event for _ in range(20) for event in reader.poll() if isinstance(event, Note)]
    assert len(notes) == 10, "what is left out comes next"


def test_a_record_is_read_only_when_its_size_is_there(tmp_path: Path) -> None:
    """The writer stores the size last: until then there is nothing, whatever stands behind it."""
    log = TinyLog(tmp_path)
    reader = LogReader(tmp_path)
    offset = log.append(fmt.Kind.NOTE, b'{"kind":"x"}')
    size = log.path.read_bytes()[offset : offset + 4]
    log.write(offset, bytes(4))
    assert reader.poll() == []
    log.write(offset, size)
    assert reader.poll() == [Note("x", 0, {})]


def test_a_segment_without_its_header_is_waited_for(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    header = log.path.read_bytes()[: fmt.HEADER.size]
    log.write(0, bytes(fmt.HEADER.size))
    log.append(fmt.Kind.NOTE, b'{"kind":"x"}')
    reader = LogReader(tmp_path)
    assert reader.poll() == []
    log.write(0, header)
    assert len(reader.poll()) == 1


@pytest.mark.parametrize("size", [0, 1, fmt.HEADER.size - 1])
def test_a_segment_that_is_not_allocated_yet_is_waited_for(tmp_path: Path, size: int) -> None:
    (tmp_path / fmt.event_segment(0)).write_bytes(bytes(size))
    assert LogReader(tmp_path).poll() == []


def test_a_full_segment_needs_no_end_record(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    log.append(fmt.Kind.NOTE, b'{"kind":"a"}')
    log.path.write_bytes(log.path.read_bytes()[: log.offset + 4])
    log.index += 1
    header = fmt.HEADER.pack(fmt.MAGIC, fmt.VERSION, 1, 0, 1, 2, 1, 1 << 12)
    log.path.write_bytes(header + bytes(1 << 12))
    log.offset = len(header)
    log.append(fmt.Kind.NOTE, b'{"kind":"b"}')
    assert [note.kind for note in read_log(tmp_path).notes] == ["a", "b"]


def test_no_log(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(CapsuleError, match="no log in"):
            read_log(folder)


def test_a_pruned_beginning_is_passed_over(tmp_path: Path) -> None:
    """What the missing segment defined is unknown and reads as empty; nothing else is lost."""
    log = TinyLog(tmp_path)
    early = log.issue(0, 1)
    log.next_segment()
    log.complete(early)
    log.issue(1, 1)
    (tmp_path / fmt.event_segment(0)).unlink()
    (collective,) = read_log(tmp_path).collectives
    assert (collective.moment, collective.op, collective.group) == (Moment(1, 1), "", "")


def test_a_segment_pruned_while_following_is_passed_over(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    log.issue(0, 1)
    reader = LogReader(tmp_path)
    assert len(reader.poll()) == 1
    for step in (1, 2):
        log.next_segment()
        log.issue(step, 1)
    for index in (0, 1):
        (tmp_path / fmt.event_segment(index)).unlink()
    (event,) = reader.poll()
    assert isinstance(event, Collective)
    assert event.moment == Moment(2, 1)


def test_a_kind_from_a_newer_writer_is_skipped(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    log.append(777, b"whatever it means")
    log.issue(0, 1)
    assert len(read_log(tmp_path).collectives) == 1


def test_a_completion_without_its_issue_is_skipped(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    log.complete(99)
    log.complete(log.issue(0, 1))
    assert len(read_log(tmp_path).collectives) == 1


def test_what_failed_and_what_never_ended(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    log.complete(log.issue(0, 1), status=fmt.Status.FAILED)
    log.issue(0, 2)
    assert [c.state for c in read_log(tmp_path).collectives] == [State.FAILED, State.SCHEDULED]


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("magic", b"ELF_LOG1", "is not a prismdbg log"),
        ("version", 2, "log format 2; this version reads 1"),
        ("index", 5, "has segment number 5"),
        ("wall", 1 << 62, "has an impossible start time"),
        ("monotonic", -(1 << 63), "has an impossible start time"),
    ],
)
def test_a_wrong_header_is_named(tmp_path: Path, field: str, value: object, says: str) -> None:
    log = TinyLog(tmp_path)
    fields: dict[str, object] = {"magic": fmt.MAGIC, "version": fmt.VERSION, "index": 0, "rank": 0, "pid": 1}
    fields |= {"wall": 1, "monotonic": 1} | {field: value}
    log.write(0, fmt.HEADER.pack(*fields.values(), 1))
    with pytest.raises(CapsuleError, match=says):
        read_log(tmp_path)


@pytest.mark.parametrize("size", [4, 12, 9, 1 << 20, 0xFFFFFFF8, 0xFFFFFFFF])
def test_a_record_of_an_impossible_size_is_named(tmp_path: Path, size: int) -> None:
    log = TinyLog(tmp_path)
    offset = log.append(fmt.Kind.NOTE, b'{"kind":"x"}')
    log.write(offset, size.to_bytes(4, "little"))
    with pytest.raises(CapsuleError, match=f"damaged at offset {offset}"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (fmt.Kind.ISSUE, b""),
        (fmt.Kind.ISSUE, bytes(fmt.ISSUE.size - 1) + b"\xff"),
        (fmt.Kind.COMPLETE, b"x"),
        (fmt.Kind.STEP, b"x"),
        (fmt.Kind.STEP, fmt.STEP.pack(1, 2, 99)),
        (fmt.Kind.TEXT, fmt.TEXT.pack(1, 1000) + b"short"),
        (fmt.Kind.STACK, fmt.STACK.pack(1, 1000) + bytes(24)),
        (fmt.Kind.GROUP, b"{"),
        (fmt.Kind.GROUP, b"[]"),
        (fmt.Kind.GROUP, b'{"name": "0"}'),
        (fmt.Kind.NOTE, b'{"text": "no kind"}'),
        (fmt.Kind.NOTE, b"[" * 10_000),
        (fmt.Kind.NOTE, b"\xff"),
    ],
)
def test_a_damaged_body_is_named(tmp_path: Path, kind: fmt.Kind, body: bytes) -> None:
    log = TinyLog(tmp_path)
    offset = log.append(kind, body)
    with pytest.raises(CapsuleError, match=f"damaged at offset {offset}"):
        read_log(tmp_path)


@pytest.mark.parametrize(("entries", "repeat", "dims"), [(1, 65535, 200), (60, 65535, 0), (1 << 31, 1, 0)])
def test_more_tensors_than_fit_are_refused(tmp_path: Path, entries: int, repeat: int, dims: int) -> None:
    """A few bytes may not ask for gigabytes."""
    log = TinyLog(tmp_path)
    head = fmt.ISSUE.pack(0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, entries, 0)
    log.append(fmt.Kind.ISSUE, head + fmt.TENSOR.pack(6, dims, 0, repeat) * 60)
    with pytest.raises(CapsuleError, match="damaged"):
        read_log(tmp_path)


def test_all_before_the_damage_is_given_first(tmp_path: Path) -> None:
    log = TinyLog(tmp_path)
    log.issue(0, 1)
    log.write(log.append(fmt.Kind.NOTE, b"{}"), b"\x03")
    reader = LogReader(tmp_path)
    assert len(reader.poll()) == 1
    for _ in range(2):
        with pytest.raises(CapsuleError):
            reader.poll()
    with pytest.raises(CapsuleError):
        read_log(tmp_path)


@settings(max_examples=200)
@given(data=st.data())
def test_any_cut_of_a_file_is_read_as_far_as_it_goes(tmp_path: Path, data: st.DataObject) -> None:
    """Either a prefix of what was written, or one error; never another record than one that was written."""
    log = write_training(tmp_path)
    whole = log.path.read_bytes()[: log.offset]
    every = LogReader(tmp_path).poll()
    try:
        log.path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
        events = LogReader(tmp_path).poll()
    except CapsuleError as error:
        assert "damaged at offset" in str(error)
        return
    finally:
        for path in tmp_path.iterdir():
            path.unlink()
    assert events == every[: len(events)]


@settings(max_examples=300)
@given(data=st.data())
def test_any_altered_bytes_are_read_or_one_error(tmp_path: Path, data: st.DataObject) -> None:
    log = write_training(tmp_path)
    for _ in range(data.draw(st.integers(1, 8))):
        log.write(data.draw(st.integers(0, log.offset)), bytes([data.draw(st.integers(0, 255))]))
    try:
        read_log(tmp_path)
    except CapsuleError as error:
        assert str(tmp_path) in str(error)
    finally:
        for path in tmp_path.iterdir():
            path.unlink()


@pytest.mark.parametrize(
    "ref",
    [
        PayloadRef(0, 0, 97),
        PayloadRef(0, 96, 1),
        PayloadRef(0, 2**64 - 1, 8),
        PayloadRef(0, 0, 2**63),
        PayloadRef(7, 0, 1),
    ],
)
def test_a_payload_that_is_not_there(tmp_path: Path, ref: PayloadRef) -> None:
    write_training(tmp_path)
    with pytest.raises(CapsuleError) as caught:
        read_payload(tmp_path, ref)
    assert caught.value.hint


def test_a_payload_that_is_cut_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a program that removes old data, or by a file server that lost it."""
    write_training(tmp_path)
    path, read = tmp_path / "payload.00000.seg", log_reader._read_into

    def after_a_cut(*what: Any) -> None:
        os.truncate(path, 20)
        read(*what)

    monkeypatch.setattr(log_reader, "_read_into", after_a_cut)
    with pytest.raises(CapsuleError, match="ends at byte 20, expected 24"):
        read_payload(tmp_path, PayloadRef(0, 16, 8))


def test_a_payload_is_read_into_buffers(tmp_path: Path) -> None:
    write_training(tmp_path)
    buffers = [bytearray(size) for size in (3, 0, 17)]
    read_payload_into([memoryview(buffer) for buffer in buffers], tmp_path, PayloadRef(0, 8, 20))
    assert b"".join(buffers) == (tmp_path / "payload.00000.seg").read_bytes()[8:28]


def test_logs_are_in_rank_order_later_attempts_last(tmp_path: Path) -> None:
    for name in ("10", "2", "0.1", "0", "0.10", "0.2"):
        (tmp_path / name).mkdir()
    (tmp_path / "note.json").write_text(json.dumps({}))
    assert [path.name for path in iter_logs(tmp_path)] == ["0", "0.1", "0.2", "0.10", "2", "10"]


def test_other_folders_beside_the_ranks_are_none_of_ours(tmp_path: Path) -> None:
    for name in ("10", "2", "2.1", "moved", "3.x", ".trash"):
        (tmp_path / name).mkdir()
    (tmp_path / "4").write_text("a file")
    assert [path.name for path in iter_logs(tmp_path)] == ["2", "2.1", "10"]


def test_a_log_that_was_cut_is_known_by_its_length(tmp_path: Path) -> None:
    write_training(tmp_path)
    last = max(tmp_path.glob("events.*.seg"))
    assert not was_cut(tmp_path)
    for size in (last.stat().st_size - 1, 20, 0):
        os.truncate(last, size)
        assert was_cut(tmp_path)
        read_events(tmp_path)
    last.unlink()
    assert was_cut(tmp_path)


def read_events(folder: Path) -> None:
    """Whatever is left is read as far as it goes."""
    assert LogReader(folder).damage is None
    LogReader(folder).poll()
