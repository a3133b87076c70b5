"""A log in fewer files says what it said before, at any moment of their joining."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from test_log_folding import SEGMENT_BYTES, long_log
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log import reader
from prismdbg.capsule.log.follower import LogFollower
from prismdbg.capsule.log.reader import event_segments, read_log
from prismdbg.log.columns import LogColumns, first_read, read_columns
from prismdbg.log.folding import fold, split_before
from prismdbg.log.joining import APART, join
from prismdbg.log.summary import preface_of_capsule, summarize

PARTS = 4
_FILLS = 63  # a kind that no reader knows


def numbers(folder: Path) -> list[int]:
    return [number for number, _ in event_segments(folder)]


def said(columns: LogColumns) -> object:
    """All that columns say but where it lies."""
    rows = [columns.record_id, columns.begun_ns, columns.ended_ns, columns.step, columns.stack]
    return [row.tolist() for row in rows], columns.issued, columns.groups, columns.notes, columns.steps


@pytest.mark.parametrize("folded", [False, True])
def test_it_says_what_it_said(tmp_path: Path, folded: bool) -> None:
    long_log(tmp_path, 14, open_at=5)
    if folded:
        summarize(tmp_path)
        assert fold(tmp_path, 12 * SEGMENT_BYTES)
    whole, columns = read_log(tmp_path), read_columns(tmp_path)
    newest, before = said(read_columns(tmp_path, 1)), numbers(tmp_path)
    join(tmp_path, PARTS * SEGMENT_BYTES)
    left = numbers(tmp_path)
    assert left == [before[0], *before[1:-APART][::PARTS], *before[-APART:]]
    assert read_log(tmp_path) == whole and said(read_columns(tmp_path)) == said(columns)
    assert said(read_columns(tmp_path, 1)) == newest
    for number in (*range(1, 14),):
        began, rest = split_before(tmp_path, 4 * number)
        assert [n for n, _ in (*began, *rest)] == left


def test_a_folder_that_does_not_change_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign log may have ten thousands of joined files, after each of which the next one is looked for."""
    long_log(tmp_path, 14)
    whole = read_log(tmp_path)
    join(tmp_path, PARTS * SEGMENT_BYTES)
    asked: list[Path] = []
    monkeypatch.setattr(reader, "event_segments", lambda folder: asked.append(folder) or event_segments(folder))
    os.utime(tmp_path, (1000, 1000))
    assert read_log(tmp_path) == whole
    assert len(asked) == 2, "for the last one, and for three joined ones"
    asked.clear()
    monkeypatch.setattr(reader, "_UNCHANGED_NS", 1 << 62)  # as if it had changed just now
    assert read_log(tmp_path) == whole
    assert len(asked) == 4


def test_what_joined_ones_stand_for_is_found_among_any_number(tmp_path: Path) -> None:
    """They may lie in each other, as a foreign log's do; each single one is looked up once."""
    for name in ("00001-00009", "00002-00003", "00020-00021", *(f"{number:05}" for number in range(25))):
        (tmp_path / f"events.{name}.seg").touch()
    assert numbers(tmp_path) == [0, 1, 2, *range(10, 20), 20, 22, 23, 24]


def test_a_capsule_of_it_has_its_slice_and_what_that_refers_to(tmp_path: Path) -> None:
    long_log(tmp_path / "log", 14)
    summarize(tmp_path / "log")
    join(tmp_path / "log", PARTS * SEGMENT_BYTES)
    before, rest = split_before(tmp_path / "log", 30)
    (tmp_path / "slice").mkdir()
    preface = preface_of_capsule(tmp_path / "log", before, rest[0][0])
    (tmp_path / "slice" / "events.00000.seg").write_bytes(preface)
    for _, path in rest:
        shutil.copy(path, tmp_path / "slice")
    of_all, of_slice = read_columns(tmp_path / "log"), read_columns(tmp_path / "slice")
    assert of_slice.issued == of_all.issued and of_slice.groups == of_all.groups
    ids = of_slice.record_id.tolist()
    assert ids[0] <= 30 and ids == list(range(ids[0], of_all.issued))


@pytest.mark.parametrize(
    ("newest_mib", "covered", "first"),
    [(24, 99, 3), (44, 99, 2), (64, 99, 2), (9, 99, 3), (5, 99, 4), (1, 99, 5), (24, 12, 2), (1 << 20, 99, 0)],
)
def test_the_end_of_a_log_is_no_longer_where_its_files_are(
    tmp_path: Path, newest_mib: int, covered: int, first: int
) -> None:
    """The ends of all ranks' logs have to fit in memory."""
    for name, mib in (("00000", 4), ("00001-00008", 32), ("00009-00016", 32), ("00017", 4), ("00018", 4), ("00019", 4)):
        path = tmp_path / f"events.{name}.seg"
        path.touch()
        os.truncate(path, mib << 20)
    assert first_read(event_segments(tmp_path), newest_mib << 20, covered) == first


def test_a_reader_finds_each_record_once_whenever_it_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_log(tmp_path, 14)
    whole, columns = read_log(tmp_path), said(read_columns(tmp_path))
    left = []
    unlink = Path.unlink

    def seen(path: Path, missing_ok: bool = False) -> None:
        """A joined file and its parts are there at once, as after a kill."""
        assert read_log(tmp_path) == whole and said(read_columns(tmp_path)) == columns
        left.append(path)
        unlink(path, missing_ok=missing_ok)
        assert read_log(tmp_path) == whole and said(read_columns(tmp_path)) == columns

    monkeypatch.setattr(Path, "unlink", seen)
    join(tmp_path, PARTS * SEGMENT_BYTES)
    assert len(left) == 10


def test_whoever_reads_all_rows_holds_no_more_than_of_a_log_that_is_not_joined(tmp_path: Path) -> None:
    log = TinyLog(tmp_path, segment_bytes=fmt.EVENT_SEGMENT_BYTES)
    for number in range(20):
        log.complete(log.issue(number, 1))
        log.append(_FILLS, bytes(fmt.EVENT_SEGMENT_BYTES - log.offset - 64))
        log.next_segment()
    join(tmp_path)
    assert max(path.stat().st_size for _, path in event_segments(tmp_path)) >= 8 * fmt.EVENT_SEGMENT_BYTES - (1 << 20)
    columns = read_columns(tmp_path)
    (ids,) = columns.bodies.fields(np.arange(len(columns)), fmt.ISSUE, (0,))
    assert ids.tolist() == columns.record_id.tolist() == [*range(20)]
    assert sum(words.nbytes for words in columns.bodies._held.values()) <= 32 << 20


def test_whoever_follows_goes_on_behind_what_was_joined(tmp_path: Path) -> None:
    log = TinyLog(tmp_path, segment_bytes=SEGMENT_BYTES)
    follower = LogFollower(tmp_path)
    for number in range(14):
        log.complete(log.issue(number, 1))
        log.next_segment()
        if number == 4:
            follower.poll()
    join(tmp_path, PARTS * SEGMENT_BYTES)
    reached = [batch.reached for batch in follower.poll()]  # type: ignore[union-attr]
    assert reached[-1] == {("0",): 13}


def test_what_was_cut_or_joined_already_stays(tmp_path: Path) -> None:
    log = long_log(tmp_path, 14)
    path = log.folder / "events.00006.seg"
    path.write_bytes(path.read_bytes()[:200])
    join(tmp_path, PARTS * SEGMENT_BYTES)
    assert numbers(tmp_path) == [0, 1, 5, 6, 7, 8, 9, 11, 12, 13]
    files = sorted(tmp_path.iterdir())
    join(tmp_path, PARTS * SEGMENT_BYTES)
    assert sorted(tmp_path.iterdir()) == files


def test_damage_is_told_where_it_was(tmp_path: Path) -> None:
    log = long_log(tmp_path, 14)
    path = log.folder / "events.00006.seg"
    data = bytearray(path.read_bytes())
    data[64:68] = (12).to_bytes(4, "little")
    path.write_bytes(data)
    before = read_columns(tmp_path)
    join(tmp_path, PARTS * SEGMENT_BYTES)
    after = read_columns(tmp_path)
    assert after.damage is not None and before.damage is not None and "of 12 bytes" in str(after.damage)
    assert after.record_id.tolist() == before.record_id.tolist()
