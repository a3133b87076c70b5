"""Of each of many ranks the last collectives, and a summary of what is before, within a segment too."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_log import TinyLog

from prismdbg.capsule.limits import MAX_FILES_READ
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.events import StepMark
from prismdbg.capsule.log.format import StepSource
from prismdbg.diagnosis.skipped_steps import got_over, last_taken, skipped
from prismdbg.log.columns import NOT_ENDED, read_columns
from prismdbg.log.kept_marks import MOST_MARKS
from prismdbg.log.step_rows import MOST_OF_MANY
from prismdbg.log.summary import summarize

PER_STEP = 4
LONG_STEPS = 40_000  # more than a summary has rows
MOST_HELD_BYTES = 1_000_000  # of each of 1,024 ranks: 1 GB of all


def written(folder: Path, steps: int, *, open_at: tuple[int, ...] = (), nan_at: tuple[int, ...] = ()) -> TinyLog:
    log = TinyLog(folder)
    for step in range(steps):
        log.step(step)
        for nth in range(1, PER_STEP + 1):
            flags = fmt.IssueFlag.HAS_FINGERPRINT | (fmt.IssueFlag.SENT_NONFINITE if log.records in nan_at else 0)
            record = log.issue(step, nth, flags=flags)
            if record not in open_at:
                log.complete(record)
    return log


def test_what_is_before_is_in_the_summary(tmp_path: Path) -> None:
    written(tmp_path, 10)
    whole, newest = read_columns(tmp_path), read_columns(tmp_path, newest_rows=6)
    assert newest.record_id.tolist() == whole.record_id[-6:].tolist()
    assert (newest.issued, newest.unknown, newest.last_moment) == (40, 0, whole.last_moment)
    assert newest.summary["collectives"].tolist() == [4] * 8 + [2]
    assert newest.summary["size_bytes"].sum() + newest.size_bytes.sum() == whole.size_bytes.sum()
    assert newest.first_step_read == 8


def test_what_is_open_and_the_first_nan_stay(tmp_path: Path) -> None:
    written(tmp_path, 10, open_at=(3, 39), nan_at=(7, 9, 38))
    newest = read_columns(tmp_path, newest_rows=4)
    assert newest.record_id.tolist() == [3, 7, 36, 37, 38, 39]
    assert newest.record_id[newest.ended_ns == NOT_ENDED].tolist() == [3, 39]
    assert newest.first_step_read == 9 and newest.issued == 40 and newest.unknown == 0
    assert newest.collective(0).record_id == 3


@pytest.mark.parametrize("rows", [1, 5, 13, 100])
def test_it_goes_on_from_the_summary_of_the_segments_before(rows: int, tmp_path: Path) -> None:
    log = written(tmp_path, 6)
    log.next_segment()
    for step in range(6, 9):
        for nth in range(1, PER_STEP + 1):
            log.complete(log.issue(step, nth))
    summarize(tmp_path)
    newest = read_columns(tmp_path, newest_rows=rows)
    assert newest.issued == 36 and newest.unknown == 0
    assert newest.record_id.tolist() == list(range(36 - min(rows, 36), 36))
    assert int(newest.summary["collectives"].sum()) >= 36 - min(rows, 36)


def test_a_log_without_collectives_has_none(tmp_path: Path) -> None:
    TinyLog(tmp_path).note("begin")
    assert not len(read_columns(tmp_path, newest_rows=5))


def test_a_record_that_is_read_alone_is_the_same(tmp_path: Path) -> None:
    written(tmp_path, 10)
    columns = read_columns(tmp_path)
    alone = [read_columns(tmp_path).collective(row) for row in range(len(columns))]
    assert [columns.collective(row) for row in range(len(columns))] == alone
    assert np.array_equal(columns.record_id, [each.record_id for each in alone])


@pytest.mark.parametrize("files", [0, MAX_FILES_READ])
def test_what_is_held_of_a_rank_does_not_grow_with_the_steps_of_the_job(tmp_path: Path, files: int) -> None:
    """Nor with the files that it read."""
    log = many_steps(tmp_path, LONG_STEPS, files)
    summarize(tmp_path)
    read_columns(tmp_path, newest_rows=781)  # what is made once for all logs
    tracemalloc.start()
    columns = read_columns(tmp_path, newest_rows=781)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert columns.read_from_later and columns.issued == log.records and columns.unknown == 0
    assert columns.collective(0).record_id == 3  # open since then
    assert 256 < len(columns.summary) <= MOST_OF_MANY
    assert held < MOST_HELD_BYTES
    assert [note.kind for note in columns.notes] == ["begin"]


def test_marks_of_steps_stay_around_those_that_were_skipped(tmp_path: Path) -> None:
    """A summary has the last of each of its thousands of segments."""
    log = written(tmp_path, 6)
    log.step(MOST_MARKS + 3)
    log.issue(MOST_MARKS + 3, 1)
    whole = read_columns(tmp_path)
    skipped_at = {0, 5, 6, 20_000, MOST_MARKS - 1}
    sources = (
        StepSource.SKIPPED_BY_SCALER if step in skipped_at else StepSource.OPTIMIZER for step in range(MOST_MARKS)
    )
    marks = [StepMark(step + 3, step, source) for step, source in enumerate(sources)]
    steps = [StepMark(MOST_MARKS + 3 + number, MOST_MARKS + number, StepSource.OPTIMIZER) for number in range(1000)]
    whole = replace(whole, earlier_marks=marks, steps=steps)
    newest = whole.newest(20)
    assert newest.steps == steps[-20:] and len(newest.earlier_marks) < 60
    assert (newest.marks[0], newest.marks[-21]) == (marks[0], steps[-21])
    assert skipped(newest) == skipped(whole) and last_taken(newest) == last_taken(whole)
    for bad in ([2], [2, 8], [*range(7, 15)], [*range(7, 20)], [20_002, 20_010]):
        nonfinite = replace(whole, step=np.resize(np.array(bad), len(whole)))
        of_newest = replace(newest, step=np.resize(np.array(bad), len(newest)))
        assert got_over(of_newest, np.full(len(newest), True)) == got_over(nonfinite, np.full(len(whole), True))


def many_steps(folder: Path, steps: int, files: int) -> TinyLog:
    """One collective a step, of which that of step 3 does not complete; then a segment with one more. files: that it
    read before."""
    log = TinyLog(folder, segment_bytes=1 << 24)
    log.note("begin")
    begin = log.offset
    log.note("file", path=f"/data/{0:06}.bin")
    size_bytes = log.offset - begin
    note = log.path.read_bytes()[begin : log.offset]
    told = b"".join(note.replace(b"/000000", b"/%06d" % number) for number in range(files))
    log.write(begin, told or bytes(size_bytes))
    log.offset = begin + len(told)
    log.complete(log.issue(0, 1))
    begin = log.offset
    log.complete(log.issue(1, 1))
    pair = np.frombuffer(log.path.read_bytes()[begin : log.offset], dtype="<u8")
    pairs = np.tile(pair, (steps - 1, 1))
    complete = (int(pair[0]) & 0xFFFFFFFF) // 8
    pairs[:, 1] = pairs[:, complete + 1] = np.arange(1, steps)  # the record
    pairs[:, 6] = np.arange(1, steps) | 1 << 32  # the step and the place in it
    pairs[2, complete] = int(pair[complete]) & 0xFFFFFFFF | 60 << 32  # of no kind that a reader knows
    log.write(begin, pairs.tobytes())
    log.offset, log.records = begin + pairs.nbytes, steps
    log.next_segment()
    log.complete(log.issue(steps, 1))
    return log
