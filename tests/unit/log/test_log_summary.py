"""What is left of a log's segments in short says of its steps, and of what may still matter, what the log says."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.notes import MOST_PLACES
from prismdbg.capsule.log.reader import event_segments
from prismdbg.errors import CapsuleError
from prismdbg.log import step_rows
from prismdbg.log.columns import NOT_ENDED, LogColumns, read_columns
from prismdbg.log.folding import fold, split_before
from prismdbg.log.log_parts import log_parts
from prismdbg.log.summary import MOST_ALIKE, preface_of_capsule, summarize, summarized

SEGMENT_BYTES = 1 << 14
DEEDS = ("issue", "complete", "fail", "nan", "receive nan", "step", "note", "segment", "fold", "summarize")


def write(folder: Path, deeds: list[str]) -> TinyLog:
    """A log of a rank whose supervisor folds and summarizes it in between."""
    log, open_ = TinyLog(folder, segment_bytes=SEGMENT_BYTES), list[int]()
    step = nth = 0
    for deed in deeds:
        match deed:
            case "issue" | "nan":
                nth += 1
                flags = fmt.IssueFlag.SENT_NONFINITE if deed == "nan" else 0
                stack = log.stack(("train.py", log.records, f"f{log.records}"))
                open_.append(log.issue(step, nth, stack=stack, flags=flags))
            case "complete" | "fail" | "receive nan" if open_:
                flags = fmt.CompleteFlag.RECEIVED_NONFINITE if deed == "receive nan" else 0
                status = fmt.Status.FAILED if deed == "fail" else fmt.Status.OK
                log.complete(open_.pop(len(open_) // 2), flags=flags, status=status)
            case "step":
                step, nth = step + 1, 0
                log.step(step)
            case "note":
                log.note("parked", moment=f"{step}.1")
            case "segment":
                log.next_segment()
            case "fold":
                fold(folder, 2 * SEGMENT_BYTES)
            case "summarize":
                summarize(folder)
    return log


def counts(log: LogColumns) -> dict[int, int]:
    """Collectives by step, as the rows and the summary have them; those that the summary kept in full once."""
    found: dict[int, int] = {}
    first = first_read(log)
    for step in log.step[log.record_id >= first].tolist():
        found[step] = found.get(step, 0) + 1
    for row in log.summary:
        found[int(row["first_step"])] = found.get(int(row["first_step"]), 0) + int(row["collectives"])
    return found


def first_read(log: LogColumns) -> int:
    """The first collective from which on all are there one by one."""
    return int(log.summary["collectives"].sum())


@given(st.lists(st.sampled_from(DEEDS), max_size=60), st.integers(0, 4))
def test_rows_and_summary_are_the_whole_log(deeds: list[str], newest: int) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        write(Path(one), [deed for deed in deeds if deed not in ("fold", "summarize")])
        write(Path(two), deeds)
        whole, left = read_columns(Path(one)), read_columns(Path(two), newest * SEGMENT_BYTES)

        assert left.notes == whole.notes and left.texts == whole.texts
        assert counts(left) == counts(whole)
        assert left.unknown == 0 and left.issued == whole.issued
        every = {int(number): whole.collective(row) for row, number in enumerate(whole.record_id)}
        there = {int(number): left.collective(row) for row, number in enumerate(left.record_id)}
        assert all(every[number] == call for number, call in there.items())
        assert len(there) == len(left)
        assert there.keys() >= {n for n in every if n >= first_read(left)}
        assert there.keys() >= set(whole.record_id[whole.ended_ns == NOT_ENDED].tolist())
        for name in ("sent_nonfinite", "received_nonfinite"):
            first = whole.record_id[getattr(whole, name)]
            if name == "received_nonfinite":
                first = first[whole.ended_ns[whole.received_nonfinite].argsort()]
            assert set(first[:1].tolist()) <= set(left.record_id[getattr(left, name)].tolist())


@given(st.lists(st.sampled_from(DEEDS), max_size=60), st.integers(0, 40))
@example(
    ["nan", "nan", "segment", "complete", "summarize", "segment", "issue", "segment", "summarize", "fold"], 2
)  # the summary has a call that the preface has no longer
def test_what_a_capsule_takes_of_a_log_is_as_it_was(deeds: list[str], first: int) -> None:
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as two,
        tempfile.TemporaryDirectory() as unfolded,
    ):
        write(Path(one), deeds)
        write(Path(unfolded), [deed for deed in deeds if deed not in ("fold", "summarize")])
        whole, ever = read_columns(Path(one)), read_columns(Path(unfolded))
        before, rest = split_before(Path(one), first)
        if before:
            preface = preface_of_capsule(Path(one), before, rest[0].number)
            (Path(two) / fmt.event_segment(0)).write_bytes(preface)
        for segment in rest:
            shutil.copy(segment.path, two)

        taken = read_columns(Path(two))

        assert taken.notes == whole.notes and taken.texts == whole.texts
        assert not before or not len(taken.summary)
        every = {int(number): ever.collective(row) for row, number in enumerate(ever.record_id)}
        there = {int(number): taken.collective(row) for row, number in enumerate(taken.record_id)}
        assert all(every[number] == call for number, call in there.items())
        assert there.keys() >= {int(number) for number in whole.record_id if number >= first}
        assert there.keys() >= set(whole.record_id[whole.ended_ns == NOT_ENDED].tolist())


def test_a_row_says_what_its_step_did(tmp_path: Path) -> None:
    log = TinyLog(tmp_path, segment_bytes=SEGMENT_BYTES)
    first, last = (log.stack(("train.py", line, "step")) for line in (7, 9))
    log.complete(log.issue(4, 1, stack=first))
    log.complete(log.issue(4, 2, stack=last), status=fmt.Status.FAILED)
    log.complete(log.issue(5, 1, stack=last), flags=fmt.CompleteFlag.RECEIVED_NONFINITE)
    log.next_segment()
    whole = read_columns(tmp_path)
    summarize(tmp_path)

    rows = read_columns(tmp_path, 0).summary

    assert rows["first_step"].tolist() == rows["last_step"].tolist() == [4, 5]
    assert rows["collectives"].tolist() == [2, 1]
    assert rows["failed"].tolist() == [1, 0] and rows["nonfinite"].tolist() == [0, 1]
    assert rows["first_stack"].tolist() == [first, last] and rows["last_stack"].tolist() == [last, last]
    waited = whole.ended_ns - whole.begun_ns
    assert rows["waited_ns"].tolist() == [waited[0] + waited[1], waited[2]]
    assert rows["size_bytes"].sum() == whole.size_bytes.sum()
    assert rows["begun_ns"].tolist() == [whole.begun_ns[0], whole.begun_ns[2]]
    assert rows["ended_ns"].tolist() == [whole.ended_ns[1], whole.ended_ns[2]]


def test_rows_of_old_steps_are_joined_where_there_are_many(tmp_path: Path) -> None:
    write(tmp_path, [*["issue", "complete", "step"] * 8, "segment", *["issue", "complete", "step"] * 8, "segment"])
    summarize(tmp_path)
    rows = read_columns(tmp_path, 0).summary

    old, new = step_rows.bounded([rows[:8], rows[8:]], most=12)

    assert [old["first_step"].tolist(), old["last_step"].tolist()] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert old["collectives"].tolist() == [2, 2, 2, 2]
    assert old["waited_ns"].sum() == rows["waited_ns"][:8].sum()
    assert new.tolist() == rows[8:].tolist()


@pytest.mark.parametrize(("kind", "more"), [("incident", {"traceback": []}), ("incident", {}), ("failed", {})])
def test_of_what_a_rank_notes_again_and_again_the_first_and_the_newest_stay(
    tmp_path: Path, kind: str, more: dict[str, list[str]]
) -> None:
    """A library may lose a thread to its server every minute for months, each time with a traceback."""
    log = TinyLog(tmp_path, segment_bytes=1 << 20)
    count = 5000
    note = {"text": "x" * 4000, "type": "OSError", "at_issue": False, **more}
    for number in range(count):
        if number % (count // 10) == 0:
            summarize(tmp_path)
            fold(tmp_path, 2 << 20)
            log.note("file", path=f"/data/{number}")
            if not more:  # else it is one more of them
                log.note("incident", traceback=["of another place\n"])
        if log.offset > (1 << 20) - 8192:
            log.next_segment()
        log.note(kind, **note, record_id=number)

    last = range(count - MOST_ALIKE, count)
    for read in (read_columns(tmp_path), read_columns(tmp_path, 0)):
        noted = [n.data["record_id"] for n in read.notes if n.kind == kind and "record_id" in n.data]
        assert noted[:MOST_ALIKE] == list(range(MOST_ALIKE)) and noted[-MOST_ALIKE:] == list(last)
        assert len([n for n in read.notes if n.kind == "file"]) == 10
        assert more or len([n for n in read.notes if "traceback" in n.data]) == 10
    segments = log_parts(tmp_path)
    assert max(path.stat().st_size for path in (tmp_path / fmt.SUMMARY, segments[0].path)) < 1 << 20
    assert len(preface_of_capsule(tmp_path, segments[:-1], segments[-1].number)) < 1 << 20


def test_of_each_place_that_raised_a_traceback_stays(tmp_path: Path) -> None:
    """A later note of the place has none, and is shown with it."""
    log = TinyLog(tmp_path, segment_bytes=SEGMENT_BYTES)
    places, each = 2 * MOST_ALIKE, 8
    for place in range(1, places + 1):
        for nth in range(1, each + 1):
            log.note("incident", traceback=[f"in place {place}\n"], place=place, nth=nth)
        log.next_segment()
        summarize(tmp_path)
        fold(tmp_path, 2 * SEGMENT_BYTES)
    log.note("incident", place=places // 2, nth=each + 1)
    for read in (read_columns(tmp_path), read_columns(tmp_path, 0)):
        firsts = [n.data["place"] for n in read.notes if n.data["nth"] == 1]
        assert firsts == list(range(1, places + 1)) and all("traceback" in n.data for n in read.notes[:-1])
        assert len(read.notes) < places * each


def test_of_more_places_than_a_rank_numbers_not_all_stay(tmp_path: Path) -> None:
    log = TinyLog(tmp_path, segment_bytes=1 << 20)
    for place in range(1, 1000):
        log.note("incident", traceback=[f"in place {place}\n"], place=place, nth=1)
    log.next_segment()
    summarize(tmp_path)
    assert len(read_columns(tmp_path, 0).notes) == MOST_PLACES + 2 * MOST_ALIKE


@given(st.integers(1, 40), st.integers(1, 12))
def test_there_are_never_more_rows_than_may_be(steps: int, most: int) -> None:
    rows = np.zeros(steps, dtype=step_rows.ROW)
    rows["first_step"] = rows["last_step"] = np.arange(steps)
    rows["collectives"] = 1
    (found,) = step_rows.bounded([rows], most)
    assert len(found) <= most and found["collectives"].sum() == steps
    assert found["first_step"][0] == 0 and found["last_step"][-1] == steps - 1


def rows_of_steps(steps: list[int], bad: list[int] = []) -> step_rows.Rows:  # noqa: B006
    rows = np.zeros(len(steps), dtype=step_rows.ROW)
    rows["first_step"] = rows["last_step"] = steps
    rows["nonfinite"] = np.isin(steps, bad)
    rows["collectives"], rows["payload_segment"] = 1, -1
    return rows


@given(st.lists(st.integers(0, 90), min_size=1, max_size=60), st.sets(st.integers(0, 90)), st.integers(1, 30))
def test_of_one_of_many_ranks_there_are_never_more_rows(steps: list[int], bad: set[int], most: int) -> None:
    found = step_rows.of_many(rows_of_steps(steps, [*bad]), most)
    assert len(found) <= max(most, 1) and found["collectives"].sum() == len(steps)
    assert found["first_step"].min() == min(steps) and found["last_step"].max() == max(steps)
    assert found["nonfinite"].sum() == len([step for step in steps if step in bad])


def test_rows_of_many_ranks_are_of_the_same_steps() -> None:
    """Whoever compares them does not find a late rank else. A segment may end within any step."""
    one = step_rows.of_many(rows_of_steps([*range(1000)]), 64)
    other = step_rows.of_many(rows_of_steps(sorted([*range(1001), *range(0, 1000, 97)])), 64)
    spans = [set(zip(rows["first_step"].tolist(), rows["last_step"].tolist(), strict=True)) for rows in (one, other)]
    assert len(spans[0] & spans[1]) > 40
    assert [(step, step) in spans[0] for step in (999, 980, 900)] == [True, True, False]


def test_a_row_with_nan_stays_a_step() -> None:
    rows = step_rows.of_many(rows_of_steps([*range(1000)], [70, 500]), 64)
    bad = rows[rows["nonfinite"] > 0]
    assert bad["first_step"].tolist() == bad["last_step"].tolist() == [70, 500]


def test_what_no_summary_has_is_unknown(tmp_path: Path) -> None:
    write(tmp_path, ["issue", "complete", "segment", "issue", "complete", "segment", "issue"])
    event_segments(tmp_path)[0][1].unlink()
    assert read_columns(tmp_path).unknown == 1


def test_only_filled_segments_are_in_it(tmp_path: Path) -> None:
    log = write(tmp_path, ["issue"])
    summarize(tmp_path)
    assert summarized(tmp_path, event_segments(tmp_path)) == -1
    log.next_segment()
    summarize(tmp_path)
    assert summarized(tmp_path, event_segments(tmp_path)) == 0


def test_a_segment_that_a_thread_may_still_write_to_is_not_in_it(tmp_path: Path) -> None:
    log = write(tmp_path, ["issue", "complete", "segment", "issue", "complete", "segment", "issue"])
    path = event_segments(tmp_path)[1][1]
    whole = path.read_bytes()
    end = whole.index(fmt.RECORD.pack(fmt.RECORD.size, fmt.Kind.END, 0))
    path.write_bytes(whole[:end] + bytes(len(whole) - end))

    summarize(tmp_path)
    assert summarized(tmp_path, event_segments(tmp_path)) == 0

    path.write_bytes(whole)
    summarize(tmp_path)
    assert summarized(tmp_path, event_segments(tmp_path)) == 1 and log.index == 2


def test_what_the_summary_does_not_cover_is_read(tmp_path: Path) -> None:
    write(tmp_path, ["issue", "segment", "summarize", "issue", "segment", "issue", "segment", "issue"])
    log = read_columns(tmp_path, 0)
    assert log.record_id.tolist() == [0, 1, 2, 3] and log.summary["collectives"].tolist() == [1]


@pytest.mark.parametrize("damage", [b"", b"short", bytes(4096), b"PRSMLOG1" + b"\xff" * 4088])
def test_a_damaged_summary_is_passed_over(tmp_path: Path, damage: bytes) -> None:
    write(tmp_path, ["issue", "complete", "segment", "issue", "segment", "summarize", "issue"])
    (tmp_path / fmt.SUMMARY).write_bytes(damage)
    log = read_columns(tmp_path, 0)
    assert log.record_id.tolist() == [0, 1, 2] and not len(log.summary)
    assert not log.read_from_later


def test_a_damaged_summary_is_made_anew_and_a_capsule_does_without(tmp_path: Path) -> None:
    deeds = ["issue", "complete", "segment", "issue", "segment", "issue", "segment", "issue", "segment"]
    write(tmp_path, [*deeds, "summarize"])
    path = tmp_path / fmt.SUMMARY
    whole, segments = path.read_bytes(), log_parts(tmp_path)
    as_it_was = preface_of_capsule(tmp_path, segments[:3], 3)
    path.write_bytes(whole[: fmt.HEADER.size] + (12).to_bytes(8, "little") + whole[fmt.HEADER.size + 8 :])

    assert preface_of_capsule(tmp_path, segments[:3], 3) == as_it_was
    segments[-1].path.with_name(fmt.event_segment(5)).write_bytes(b"")  # the rank begins another one
    with segments[-1].path.open("r+b") as file:
        file.seek(fmt.HEADER.size)
        file.write(fmt.RECORD.pack(fmt.RECORD.size, fmt.Kind.END, 0))
    summarize(tmp_path)
    assert summarized(tmp_path, event_segments(tmp_path)) == 4
    assert read_columns(tmp_path, 0).summary["collectives"].sum() == 4


def test_a_summary_that_is_older_than_what_was_dropped_is_none(tmp_path: Path) -> None:
    """It was copied there, say, or could not be written since."""
    write(tmp_path, ["issue", "segment", "summarize", "issue", "segment", "issue", "segment", "issue"])
    assert fold(tmp_path, SEGMENT_BYTES) == 2
    assert summarized(tmp_path, event_segments(tmp_path)) == -1
    before = read_columns(tmp_path)
    assert read_columns(tmp_path, 0).record_id.tolist() == before.record_id.tolist()
    summarize(tmp_path)
    assert summarized(tmp_path, event_segments(tmp_path)) == 2
    assert read_columns(tmp_path, 0).unknown == 0


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_file_is_no_summary(tmp_path: Path, kind: str) -> None:
    write(tmp_path, ["issue", "segment", "issue"])
    path = tmp_path / fmt.SUMMARY
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(event_segments(tmp_path)[0][1])
        case "folder":
            path.mkdir()
    assert read_columns(tmp_path, 0).record_id.tolist() == [0, 1]


def test_a_newer_summary_is_put_in_place_while_one_is_read(tmp_path: Path) -> None:
    """What is decoded later is what was there when the log was read."""
    log = write(tmp_path, ["issue", "segment", "summarize", "issue"])
    columns = read_columns(tmp_path, 0)
    log.complete(0)
    log.next_segment()
    summarize(tmp_path)
    assert columns.collective(0).record_id == 0
    assert not list(tmp_path.glob(".*"))
    assert [number for number, _ in event_segments(tmp_path)] == [0, 1, 2]


@pytest.mark.parametrize("newest", [None, 1 << 20])
def test_a_segment_that_is_a_link_to_nothing_is_one_error(tmp_path: Path, newest: int | None) -> None:
    write(tmp_path / "log", ["issue", "segment", "issue"])
    second = tmp_path / "log" / fmt.event_segment(1)
    second.unlink()
    second.symlink_to(tmp_path / "gone")
    with pytest.raises(CapsuleError, match="cannot be read"):
        read_columns(tmp_path / "log", newest)
