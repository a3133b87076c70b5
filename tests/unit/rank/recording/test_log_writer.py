"""The log that Python writes, where its writing is interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.capsule.log.format import Kind
from prismdbg.capsule.log.reader import read_log
from prismdbg.rank.recording.log_writer import LogWriter, Segment
from prismdbg.rank.recording.write_queue import WriteQueue


def note(kind: str) -> bytes:
    return b'{"kind": "%s", "time_ns": 1}' % kind.encode()


def test_what_a_signals_handler_appends_meanwhile_is_written_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogWriter(WriteQueue(is_direct=True), tmp_path, 0)
    write, left = Segment.write, ["b", "c"]

    def interrupted(segment: Segment, at: int, head: bytes, rest: bytes) -> None:
        while left:
            log.append(Kind.NOTE, note(left.pop(0)))
        write(segment, at, head, rest)

    monkeypatch.setattr(Segment, "write", interrupted)
    log.append(Kind.NOTE, note("a"))
    log.append(Kind.NOTE, note("d"))
    log.close()
    assert [each.kind for each in read_log(tmp_path).notes] == ["a", "b", "c", "d"]


def test_a_record_behind_one_that_failed_is_tried_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogWriter(WriteQueue(is_direct=True), tmp_path, 0)

    def failing(*_: object) -> None:
        log.append(Kind.NOTE, note("lost"))
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Segment, "write", failing)
        with pytest.raises(OSError, match="No space"):
            log.append(Kind.NOTE, note("lost"))
    log.append(Kind.NOTE, note("kept"))
    log.close()
    assert [each.kind for each in read_log(tmp_path).notes] == ["kept"]
