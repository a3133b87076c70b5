"""What a file server holds holds no thread of the job: order, bounds, and what is dropped is said."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from prismdbg.capsule.log.format import Kind
from prismdbg.capsule.log.reader import read_log
from prismdbg.rank.recording import write_queue as queue_module
from prismdbg.rank.recording.log_writer import LogWriter, PayloadWriter
from prismdbg.rank.recording.python_recorder import PythonRecorder
from prismdbg.rank.recording.write_queue import WriteQueue
from prismdbg.settings import file_system
from prismdbg.settings.file_system import bounded, is_local

BOUND_S = 0.2


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Whoever waits for this event waits for a file server."""
    monkeypatch.setattr(file_system, "LONGEST_WAIT_S", 60.0)
    event = threading.Event()
    yield event
    event.set()


@contextmanager
def short_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where no answer is to come; a busy machine has time for the answers that come."""
    with monkeypatch.context() as within:
        within.setattr(file_system, "LONGEST_WAIT_S", BOUND_S)
        yield


@pytest.mark.parametrize(
    ("folder", "local"),
    [
        ("/work/run", True),
        ("/work/shared/run", False),
        ("/work/sharedrun", True),
        ("/a b/run", False),
        ("/covered/run", False),
        ("/covered/again/run", True),
    ],
)
def test_the_mount_that_a_folder_lies_on(folder: str, local: bool, tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    rows = [
        ("/", "shared:1 master:2", "ext4"),
        ("/work/shared", "", "nfs4"),
        (r"/a\040b", "", "fuse.bindfs"),
        ("/covered", "", "xfs"),
        ("/covered", "", "lustre"),
        ("/covered/again", "", "tmpfs"),
    ]
    lines = (f"{n} 1 8:1 / {p} rw,noatime {f + ' ' if f else ''}- {t} s rw\n" for n, (p, f, t) in enumerate(rows))
    mounts.write_text("".join(lines))
    assert is_local(Path(folder), mounts) is local


def test_what_cannot_be_known_may_hang(tmp_path: Path) -> None:
    assert not is_local(tmp_path, tmp_path / "missing")


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_MOST_OPTIONAL_BYTES", 50_000)
    monkeypatch.setattr(queue_module, "_MOST_WAITING_BYTES", 100_000)


def test_two_buckets_of_ddp_fit_and_events_besides(answers: threading.Event) -> None:
    """Of 25 MiB each, one right after the other."""
    queue, done = WriteQueue(is_direct=False), list[int]()
    queue.do(0, answers.wait)
    for number in range(2):
        queue.do(25 << 20, lambda number=number: done.append(number), is_required=False)  # type: ignore[misc]
    queue.do(8 << 20, lambda: done.append(2))
    answers.set()
    queue.flush()
    assert done == [0, 1, 2]


def test_the_queue_is_bounded_and_nobody_waits(
    answers: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)
    queue, done, begun = WriteQueue(is_direct=False), list[int](), threading.Event()
    queue.do(0, lambda: (begun.set(), answers.wait()))
    assert begun.wait(20)
    with pytest.raises(OSError, match="is too slow, or does not answer"):
        for number in range(1000):
            queue.do(1000, lambda number=number: done.append(number))  # type: ignore[misc]
    with short_waits(monkeypatch), pytest.raises(OSError, match="of the log does not answer"):
        queue.flush()
    answers.set()
    with pytest.raises(OSError, match="is too slow"):
        queue.flush()
    assert done and done == list(range(len(done))), "what was taken is written, and there is no gap in it"
    with pytest.raises(OSError, match="is too slow"):
        queue.do(0, lambda: done.append(-1))
    assert -1 not in done


def test_what_is_larger_than_the_queue_is_written_alone(
    answers: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A payload may be larger than all that may wait."""
    make_small(monkeypatch)
    queue, done = WriteQueue(is_direct=False), list[int]()
    for number in range(0, 6, 2):
        queue.do(1_000_000, lambda number=number: done.append(number))  # type: ignore[misc]
        queue.do(100, lambda number=number: done.append(number + 1))  # type: ignore[misc]
        queue.flush()
    assert done == list(range(6))


def test_a_large_payload_that_is_one_too_many_ends_nothing_else(
    answers: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)
    queue, done = WriteQueue(is_direct=False), list[int]()
    queue.do(0, answers.wait)
    queue.do(1_000_000, lambda: done.append(0), is_required=False)
    with pytest.raises(OSError, match="is too slow"):
        queue.do(1_000_000, lambda: done.append(-1), is_required=False)
    queue.do(100, lambda: done.append(1))
    answers.set()
    queue.flush()
    assert done == [0, 1]


def test_events_that_end_after_the_payloads_are_said_too(
    answers: threading.Event, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a server no longer answers: the log has no room for a word of it."""
    recorder = PythonRecorder()
    recorder.open(str(tmp_path), 0, 4096, 4096, True, True, True, False, False)
    recorder.window(True, -1, 0)
    assert recorder._queue is not None
    recorder._queue.do(0, answers.wait)
    make_small(monkeypatch)
    assert recorder._keep([torch.ones(100_000)]) is not None
    assert recorder._keep([torch.ones(100_000)]) is None
    assert recorder.stats()["lost"].startswith("payloads are no longer recorded")
    assert capsys.readouterr().err == "", "it is in the log"
    for _ in range(1000):
        recorder.note("other", "x" * 1000)
    assert recorder.stats()["lost"].startswith("events are no longer recorded")
    (line,) = capsys.readouterr().err.splitlines()
    assert "events are no longer recorded" in line


def test_events_have_room_where_payloads_have_none(
    answers: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither many payloads nor the segments that go with the window take it all."""
    recorder = PythonRecorder()
    recorder.open(str(tmp_path), 0, 1 << 16, 4096, True, True, True, False, False)
    recorder.window(True, -1, 60_000)
    assert recorder._queue is not None
    recorder._queue.do(0, answers.wait)
    make_small(monkeypatch)
    while recorder._keep([torch.ones(7500)]) is not None:
        pass
    for _ in range(20):
        recorder.note("other", "x" * 1000)
    assert recorder.stats()["lost"].startswith("payloads are no longer recorded")
    answers.set()
    recorder._queue.flush()
    assert [note.kind for note in read_log(tmp_path).notes] == ["lost", *["other"] * 20]


def test_a_segment_that_could_not_be_removed_is_when_there_is_room(
    answers: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)
    queue, begun = WriteQueue(is_direct=False), threading.Event()
    payloads = PayloadWriter(queue, tmp_path, 1000)
    for step in range(3):
        payloads.write([memoryview(bytes(1000))], step, 0)
    queue.flush()
    queue.do(0, lambda: (begun.set(), answers.wait()))
    assert begun.wait(20)
    while queue_has_room(queue):
        pass
    payloads.drop_before(2)
    assert payloads.total_bytes == 3 * 1024, "still there"
    queue.do(0, lambda: None)
    answers.set()
    queue.flush()
    payloads.drop_before(2)
    queue.flush()
    assert [path.name for path in tmp_path.iterdir()] == ["payload.00002.seg"]


def queue_has_room(queue: WriteQueue) -> bool:
    try:
        queue.do(1000, lambda: None, is_required=False)
    except OSError:
        return False
    return True


def test_in_order_and_a_failure_ends_it(answers: threading.Event, tmp_path: Path) -> None:
    queue, done = WriteQueue(is_direct=False), list[int]()
    queue.do(0, answers.wait)
    for number in range(3):
        queue.do(0, lambda number=number: done.append(number))  # type: ignore[misc]
    queue.do(0, (tmp_path / "missing" / "file").touch)
    queue.do(0, lambda: done.append(3))
    answers.set()
    with pytest.raises(OSError, match="No such file"):
        queue.flush()
    assert done == [0, 1, 2]
    with pytest.raises(OSError, match="No such file"):
        queue.do(0, lambda: None)


def test_a_forked_child_waits_for_nobody(answers: threading.Event, tmp_path: Path) -> None:
    queue = WriteQueue(is_direct=False)
    queue.do(0, answers.wait)
    child = os.fork()
    if child == 0:
        queue.flush()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_what_takes_too_long_is_left_alone(answers: threading.Event) -> None:
    assert bounded(lambda: 7) == 7
    with pytest.raises(TimeoutError, match="does not answer"):
        bounded(answers.wait, BOUND_S)
    with pytest.raises(ZeroDivisionError):
        bounded(lambda: 1 // 0)


def test_a_log_goes_through_it_whole(answers: threading.Event, tmp_path: Path) -> None:
    queue = WriteQueue(is_direct=False)
    queue.do(0, answers.wait)
    log = LogWriter(queue, tmp_path, 3, segment_bytes=4096)
    for number in range(100):
        log.append(Kind.NOTE, b'{"kind": "%d", "time_ns": 1, "text": "%s"}' % (number, b"x" * 100))
    log.close()
    log.append(Kind.NOTE, b'{"kind": "held", "time_ns": 1}')
    log.reopen()
    assert not list(tmp_path.iterdir())
    answers.set()
    queue.flush()
    notes = [note.kind for note in read_log(tmp_path).notes]
    assert notes == [*map(str, range(100)), "held"]
    assert len(list(tmp_path.glob("events.*.seg"))) > 3
    opened = [Path(os.path.realpath(link)) for link in Path("/proc/self/fd").iterdir()]
    assert not [path for path in opened if path.is_relative_to(tmp_path)], "a log of another test may still be open"


def test_a_capture_is_refused_and_the_end_says_what_is_missing(
    answers: threading.Event, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = PythonRecorder()
    recorder.open(str(tmp_path), 0, 4096, 4096, True, True, True, False, False)
    assert recorder._queue is not None
    recorder._queue.do(0, answers.wait)
    with short_waits(monkeypatch):
        with pytest.raises(OSError, match="does not answer"):
            recorder.close_log()
        recorder.reopen_log()
        recorder.tidy()
        recorder.tidy()
    assert capsys.readouterr().err.splitlines() == [
        f"prismdbg: the end of the log is not written: [Errno {errno.EBUSY}] the file system of the log does not answer"
    ]


def test_what_failed_last_is_said_at_the_end(
    answers: threading.Event, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers.set()
    recorder = PythonRecorder()
    recorder.open(str(tmp_path), 0, 4096, 4096, True, True, True, False, False)
    assert recorder._queue is not None
    recorder._queue.do(0, (tmp_path / "missing").stat)
    recorder.tidy()
    assert "the end of the log is not written: [Errno 5] [Errno 2]" in capsys.readouterr().err
