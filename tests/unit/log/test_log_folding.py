"""A log that became shorter says of its rest what it said before."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.reader import event_segments
from prismdbg.capsule.log.reader import read_log as read_values
from prismdbg.cli.commands.record import command as record_command
from prismdbg.cli.options.param_types import size
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.jobs.storage.run_report import rank_states
from prismdbg.log import columns
from prismdbg.log.folding import fold, span_kept_s, split_before
from prismdbg.log.rank_log import read_log
from prismdbg.model.collective import Collective, State
from prismdbg.model.durations import duration

SEGMENT_BYTES = 1 << 11


def long_log(folder: Path, segments: int, each: int = 4, open_at: int | None = None) -> TinyLog:
    """Every collective from a line and in a group of its own, so that each segment defines texts and stacks. The first
    of segment `open_at` does not complete."""
    log = TinyLog(folder, segment_bytes=SEGMENT_BYTES)
    for segment in range(segments):
        for number in range(each):
            name = f"g{segment}.{number}"
            log.group(name, (0, 1))
            record = log.issue(segment, number + 1, group=name, stack=log.stack(("train.py", log.records, f"f{name}")))
            if (segment, number) != (open_at, 0):
                log.complete(record)
        log.note("parked", moment=f"{segment}.1")
        if segment + 1 < segments:
            log.next_segment()
    return log


def test_the_rest_is_as_it_was(tmp_path: Path) -> None:
    long_log(tmp_path, 6)
    before = read_log(tmp_path)
    whole, groups, notes = list(before.collectives), dict(before.groups), list(before.notes)

    assert fold(tmp_path, 3 * SEGMENT_BYTES) == 2  # the first of three is the preface now

    after = read_log(tmp_path)
    assert list(after.collectives) == whole[12:]
    assert after.groups == groups and after.notes == notes
    assert after.dropped == 12
    assert [number for number, _ in event_segments(tmp_path)][:2] == [0, 3]


def test_how_far_back_a_log_reaches_comes_from_the_pace_of_its_last_full_segment(tmp_path: Path) -> None:
    log = long_log(tmp_path, 1)
    assert span_kept_s(tmp_path, 10 * SEGMENT_BYTES) is None  # the first is not full

    log.next_segment()
    begun = [c.time_created_ns for c in read_log(tmp_path).collectives]

    assert span_kept_s(tmp_path, 10 * SEGMENT_BYTES) == pytest.approx(10 * (begun[-1] - begun[0]) / 1e9)


@pytest.mark.parametrize(
    ("seconds", "text"), [(3, "3 seconds"), (90, "1.5 minutes"), (7200, "2.0 hours"), (280_000, "3.2 days")]
)
def test_a_duration_is_in_a_unit_that_people_use(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_both_readers_see_the_same(tmp_path: Path) -> None:
    long_log(tmp_path, 6, open_at=1)
    fold(tmp_path, 3 * SEGMENT_BYTES)

    values, rows = read_values(tmp_path), read_log(tmp_path)

    assert list(rows.collectives) == list(values.collectives)
    assert (rows.groups, rows.notes, rows.dropped) == (values.groups, values.notes, values.dropped)


def test_what_was_not_complete_is_still_there(tmp_path: Path) -> None:
    """A rank may wait in it for hours while another of its threads goes on."""
    log = long_log(tmp_path, 6, open_at=0)
    fold(tmp_path, 2 * SEGMENT_BYTES)

    waiting = read_log(tmp_path).collectives[0]
    assert waiting.record_id == 0 and waiting.state is State.SCHEDULED
    assert waiting.group == "g0.0" and waiting.frames[0].name == "fg0.0"

    log.complete(0)
    assert read_log(tmp_path).collectives[0].state is State.COMPLETED
    for _ in range(3):
        log.next_segment()
        log.issue(9, 1)
    fold(tmp_path, 2 * SEGMENT_BYTES)
    assert read_log(tmp_path).collectives[0].record_id > 0  # it went with its completion


def test_what_a_checkpoint_needs_stays(tmp_path: Path) -> None:
    long_log(tmp_path, 6)  # four each

    assert fold(tmp_path, SEGMENT_BYTES, needed_from=9) == 1  # 8 to 11 are in segment 2

    assert read_log(tmp_path).collectives[0].record_id == 8


def test_the_segment_that_is_written_to_stays(tmp_path: Path) -> None:
    log = long_log(tmp_path, 4)
    fold(tmp_path, 0)

    assert [number for number, _ in event_segments(tmp_path)] == [0, 3]
    assert fold(tmp_path, 0) == 0  # the preface cannot become shorter
    log.issue(9, 9)
    assert read_log(tmp_path).collectives[-1].moment.step == 9


@pytest.mark.parametrize("segments", [1, 2])
def test_a_short_log_is_left_alone(tmp_path: Path, segments: int) -> None:
    long_log(tmp_path, segments)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    assert fold(tmp_path, segments * SEGMENT_BYTES) == 0
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@given(st.lists(st.sampled_from(["issue", "complete", "segment", "fold"]), max_size=60))
def test_folding_at_any_time_changes_nothing_of_what_is_left(deeds: list[str]) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        whole, folded = TinyLog(Path(one), segment_bytes=1 << 14), TinyLog(Path(two), segment_bytes=1 << 14)
        open_: list[int] = []
        for deed in deeds:
            if deed == "issue":
                for log in (whole, folded):
                    stack = log.stack(("train.py", log.records, f"f{log.records}"))
                    record = log.issue(log.records, 1, stack=stack)
                open_.append(record)
            elif deed == "complete" and open_:
                record = open_.pop(len(open_) // 2)
                for log in (whole, folded):
                    log.complete(record)
            elif deed == "segment":
                for log in (whole, folded):
                    log.next_segment()
            elif deed == "fold":
                fold(folded.folder, 1 << 14)

        every = {c.record_id: c for c in read_log(whole.folder).collectives}
        left: dict[int, Collective] = {c.record_id: c for c in read_log(folded.folder).collectives}
        assert all(every[number] == c for number, c in left.items())
        assert left.keys() >= set(open_)


def test_status_counts_what_the_log_no_longer_has(tmp_path: Path) -> None:
    run = RunFolder.new(tmp_path / "run")
    folder = run.ranks / "0"
    long_log(folder, 6)
    write_json(folder / "rank.json", {"pid": 4711})
    assert fold(folder, 3 * SEGMENT_BYTES) == 2
    (state,) = rank_states(run)
    assert state.collectives == 24


def test_an_ordinary_collective_takes_at_most_250_bytes(tmp_path: Path) -> None:
    """One tensor, from a line that was there before: of such, a million fit into what is kept by default."""
    log = TinyLog(tmp_path, segment_bytes=1 << 16)
    log.group("0", (0, 1))
    stack = log.stack(("train.py", 7, "step"))
    log.complete(log.issue(0, 1, stack=stack))
    begin = log.offset
    for number in range(100):
        log.complete(log.issue(0, number + 2, stack=stack))
    assert 150 < (log.offset - begin) / 100 <= 250
    (log_bytes,) = (option.default for option in record_command.params if option.name == "log_bytes")
    assert isinstance(log_bytes, str)
    assert 1_000_000 <= size(log_bytes) / 250 < 1_100_000


def test_where_a_capsule_begins(tmp_path: Path) -> None:
    long_log(tmp_path, 5)  # four each

    def segments(record: int) -> list[int]:
        return [segment.number for segment in split_before(tmp_path, record)[1]]

    assert [segments(0), segments(4), segments(11), segments(19), segments(100)] == [
        [0, 1, 2, 3, 4],
        [1, 2, 3, 4],
        [2, 3, 4],
        [4],
        [4],
    ]


def test_a_damaged_segment_is_named_and_nothing_goes(tmp_path: Path) -> None:
    long_log(tmp_path, 4)
    path = tmp_path / fmt.event_segment(1)
    data = bytearray(path.read_bytes())
    data[fmt.HEADER.size : fmt.HEADER.size + 4] = (12).to_bytes(4, "little")
    path.write_bytes(data)

    with pytest.raises(CapsuleError, match=r"events\.00001\.seg is damaged at offset 64"):
        fold(tmp_path, 0)

    assert len(event_segments(tmp_path)) == 4
    assert not list(tmp_path.glob(".*"))


def test_no_segment_at_all(tmp_path: Path) -> None:
    assert fold(tmp_path, 0) == 0
    assert split_before(tmp_path, 7) == ([], [])


def test_a_segment_that_goes_while_the_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_log(tmp_path, 6)
    listed, times = columns.event_segments, iter((True,))

    def and_then_it_is_folded(folder: Path) -> list[tuple[int, Path]]:
        found = listed(folder)
        if next(times, False):
            fold(folder, SEGMENT_BYTES)
        return found

    monkeypatch.setattr(columns, "event_segments", and_then_it_is_folded)

    log = read_log(tmp_path)
    assert log.collectives[-1].record_id == 23 and log.dropped > 0
