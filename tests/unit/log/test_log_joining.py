"""A log in fewer files says what it said before, at any moment of their joining."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypedDict

import numpy as np
import pytest
from test_log_folding import SEGMENT_BYTES, long_log
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log import reader
from prismdbg.capsule.log.batch import Batch
from prismdbg.capsule.log.follower import LogFollower
from prismdbg.capsule.log.reader import LogReader, event_segments, read_log
from prismdbg.errors import CapsuleError
from prismdbg.log import joining
from prismdbg.log import log_parts as log_parts_module
from prismdbg.log.columns import LogColumns, newest_parts, read_beginning, read_columns, read_whole
from prismdbg.log.folding import bytes_since, fold, reaches, split_before
from prismdbg.log.joining import APART, JOINED_BYTES, alone, join
from prismdbg.log.log_parts import MAX_SEGMENT_BYTES, log_parts
from prismdbg.log.summary import preface_of_capsule, put, summarize
from prismdbg.model.collective import Collective

PARTS = 4
_FILLS = 63  # a kind that no reader knows


class Altered(TypedDict, total=False):
    """Of a table of parts: other numbers, begins that are moved by so many slots, another size of the record."""

    numbers: list[int]
    moved: dict[int, int]
    size_bytes: int


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
        assert [part.number for part in (*began, *rest)] == before


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
    of_all, as_before = read_columns(tmp_path / "log"), sliced(tmp_path / "log", tmp_path / "as before")
    join(tmp_path / "log", PARTS * SEGMENT_BYTES)
    of_slice = sliced(tmp_path / "log", tmp_path / "slice")
    assert of_slice.issued == of_all.issued and of_slice.groups == of_all.groups
    assert of_slice.record_id.tolist() == list(range(28, of_all.issued)), "from the segment with the 30th"
    assert said(of_slice) == said(as_before) and numbers(tmp_path / "slice") == numbers(tmp_path / "as before")
    assert read_log(tmp_path / "slice") == read_log(tmp_path / "as before")


def sliced(log: Path, into: Path) -> LogColumns:
    before, rest = split_before(log, 30)
    into.mkdir()
    (into / fmt.event_segment(0)).write_bytes(preface_of_capsule(log, before, rest[0].number))
    for part in rest:
        (into / fmt.event_segment(part.number)).write_bytes(part.path.read_bytes() if part.is_file else alone(part))
    return read_columns(into)


@pytest.mark.parametrize(
    ("newest_mib", "covered", "first"),
    [(24, 99, 17), (44, 99, 9), (64, 99, 9), (9, 99, 17), (5, 99, 18), (1, 99, 19), (24, 12, 9), (1 << 20, 99, 0)],
)
def test_the_end_of_a_log_is_no_longer_where_its_files_are(
    tmp_path: Path, newest_mib: int, covered: int, first: int
) -> None:
    """The ends of all ranks' logs have to fit in memory."""
    for name, mib in (("00000", 4), ("00001-00008", 32), ("00009-00016", 32), ("00017", 4), ("00018", 4), ("00019", 4)):
        path = tmp_path / f"events.{name}.seg"
        path.touch()
        os.truncate(path, mib << 20)
    assert newest_parts(event_segments(tmp_path), newest_mib << 20, covered)[0].number == first


@pytest.mark.parametrize("segments", [1, 2, 5, 9, 14])
def test_as_much_of_the_end_is_read_as_before(tmp_path: Path, segments: int) -> None:
    """Of a joined file only some parts."""
    long_log(tmp_path, 14)
    summarize(tmp_path)
    before = read_columns(tmp_path, segments * SEGMENT_BYTES).first_step_read
    join(tmp_path)
    files = event_segments(tmp_path)
    assert len(files) == 3
    assert read_columns(tmp_path, segments * SEGMENT_BYTES).first_step_read <= before
    chosen = newest_parts(files, segments * SEGMENT_BYTES, 12)
    assert sum(part.size_bytes() for part in chosen) <= (segments + 1) * SEGMENT_BYTES
    assert [part.number for part in newest_parts(files, 1, 12)] == [13]


@pytest.mark.parametrize(
    "altered",
    [
        {"numbers": [1, 3, 2, 4]},
        {"numbers": [2, 3, 4, 5]},
        {"numbers": [1, 2, 3, 9]},
        {"numbers": [1, 2, 2, 4]},
        {"moved": {2: 1 << 20}},
        {"moved": {1: -(1 << 16)}},
        {"moved": {2: 8 - (1 << 16), 3: -8}},
        {"moved": {0: 1}},
        {"size_bytes": 8},
        {"size_bytes": 36},
        {"size_bytes": 1 << 16},
        {"size_bytes": 1 << 30},
    ],
    ids=str,
)
def test_a_table_that_cannot_be_true_is_not_used(tmp_path: Path, altered: Altered) -> None:
    """Its parts are not in order, begin within it or outside of the file, or are too many."""
    path = joined_with(tmp_path, altered)
    parts = [part for part in log_parts(tmp_path) if part.path == path]
    assert [(part.number, part.end) for part in parts] == [(1, None)]


@pytest.mark.parametrize("part", [1, 2, 3])
@pytest.mark.parametrize("by", [-1, 1, 7])
def test_a_part_that_does_not_end_with_a_record_is_damaged(tmp_path: Path, part: int, by: int) -> None:
    path = joined_with(tmp_path, {"moved": {part: by}})
    columns = read_columns(tmp_path)
    assert columns.damage is not None and str(path) in str(columns.damage)
    assert columns.record_id.tolist() == [*range(4 * (part + 1))][: len(columns)] and len(columns) < 4 * (part + 2)
    with pytest.raises(CapsuleError, match="is damaged at offset"):
        preface_of_capsule(tmp_path, log_parts(tmp_path)[: part + 1], 9)


@pytest.mark.parametrize("record", [fmt.RECORD.pack(0, 0, 0), fmt.RECORD.pack(8, fmt.Kind.END, 0)], ids=["none", "end"])
def test_no_part_ends_early(tmp_path: Path, record: bytes) -> None:
    joined_with(tmp_path, {})
    part = log_parts(tmp_path)[2]
    with part.path.open("r+b") as file:
        file.seek(part.offset(8))
        file.write(record)
    columns = read_columns(tmp_path)
    assert columns.damage is not None and columns.record_id.tolist() == [*range(8)]


def test_a_part_with_a_hole_is_not_read_into_memory(tmp_path: Path) -> None:
    path = joined_with(tmp_path, {})
    os.truncate(path, 3 * MAX_SEGMENT_BYTES)
    last = next(part for part in log_parts(tmp_path) if part.number == 4)
    with pytest.raises(CapsuleError, match="no segment has more than 128 MiB"):
        last.words()
    one_before = log_parts(tmp_path)[3]
    os.truncate(path, last.offset(8) - 8)
    with pytest.raises(CapsuleError, match="was truncated"):
        one_before.words()
    with pytest.raises(CapsuleError, match="was truncated"):
        last.body(8)


@pytest.mark.parametrize(
    ("number", "by_bytes", "rows"), [(1, 0, 4), (1, 8, 4), (3, -8, 12), (3, 0, 12), (3, 8, 12), (4, 400, 17)]
)
def test_of_a_file_that_was_cut_what_is_left_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, by_bytes: int, rows: int
) -> None:
    """As after a copy that was interrupted. A joined file may be longer than a segment can be."""
    path = joined_with(tmp_path, {})
    monkeypatch.setattr(log_parts_module, "MAX_SEGMENT_BYTES", path.stat().st_size // 2)
    begin = next(part for part in log_parts(tmp_path) if part.number == number).offset(8)
    os.truncate(path, begin + by_bytes)
    columns = read_columns(tmp_path)
    assert columns.damage is not None and str(path) in str(columns.damage)
    assert columns.record_id.tolist() == [*range(rows)]
    with pytest.raises(CapsuleError, match=str(path)):
        read_whole(tmp_path)
    assert read_beginning(tmp_path).rank == 0


def test_a_long_file_whose_table_is_not_used_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = joined_with(tmp_path, {"numbers": [1, 2, 2, 4]})
    monkeypatch.setattr(log_parts_module, "MAX_SEGMENT_BYTES", path.stat().st_size // 2)
    columns = read_columns(tmp_path)
    assert columns.damage is not None and str(path) in str(columns.damage)
    assert columns.record_id.tolist() == [*range(4)]


def joined_with(folder: Path, altered: Altered) -> Path:
    """The segments 1 to 4 as one file, with another table."""
    long_log(folder, 6)
    join(folder)
    path = folder / fmt.joined_segment(1, 4)
    data = bytearray(path.read_bytes())
    size_bytes, kind, zeros = fmt.RECORD.unpack_from(data, fmt.HEADER.size)
    assert kind == fmt.Kind.PARTS and size_bytes == fmt.RECORD.size + 4 * fmt.PART.size
    fmt.RECORD.pack_into(data, fmt.HEADER.size, altered.get("size_bytes", size_bytes), kind, zeros)
    for place, number in enumerate(altered.get("numbers", [1, 2, 3, 4])):
        at = fmt.HEADER.size + fmt.RECORD.size + place * fmt.PART.size
        begin = fmt.PART.unpack_from(data, at)[1] + altered.get("moved", {}).get(place, 0)
        fmt.PART.pack_into(data, at, number, max(begin, 0))
    path.write_bytes(data)
    return path


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
    assert len(left) == 12


def test_what_is_held_does_not_grow_with_the_joined_file(tmp_path: Path) -> None:
    log = TinyLog(tmp_path, segment_bytes=fmt.EVENT_SEGMENT_BYTES)
    for number in range(20):
        log.complete(log.issue(number, 1))
        log.append(_FILLS, bytes(fmt.EVENT_SEGMENT_BYTES - log.offset - 64))
        log.next_segment()
    summarize(tmp_path)
    assert peak_bytes(lambda: join(tmp_path)) < 4 * fmt.EVENT_SEGMENT_BYTES
    joined = event_segments(tmp_path)[1][1]
    assert joined.stat().st_size > 18 * (fmt.EVENT_SEGMENT_BYTES - 1024)
    for read in (
        lambda: split_before(tmp_path, 3),
        lambda: bytes_since(tmp_path, 3),
        lambda: reaches(tmp_path, 3),
        lambda: read_beginning(tmp_path),
        lambda: read_columns(tmp_path, fmt.EVENT_SEGMENT_BYTES + 1),
        lambda: alone(log_parts(tmp_path)[5]),
    ):
        assert peak_bytes(read) < 4 * fmt.EVENT_SEGMENT_BYTES
    columns = read_columns(tmp_path)
    (ids,) = columns.bodies.fields(np.arange(len(columns)), fmt.ISSUE, (0,))
    assert ids.tolist() == columns.record_id.tolist() == [*range(20)]
    assert sum(words.nbytes for words in columns.bodies._held.values()) <= 32 << 20


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


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


@pytest.mark.parametrize("polled_at", [(), (0,), (1,), (1.5,), (4,), (4.5,), (12,), (0, 4.5, 12.5), (13,)], ids=str)
def test_whoever_follows_goes_on_within_what_was_joined(tmp_path: Path, polled_at: tuple[float, ...]) -> None:
    """Two collectives in each segment; .5: when one of them is written."""
    log = TinyLog(tmp_path, segment_bytes=SEGMENT_BYTES)
    reader, follower = LogReader(tmp_path), LogFollower(tmp_path)
    given: list[int] = []
    followed: list[int] = []

    def poll() -> None:
        given.extend(event.record_id for event in reader.poll() if isinstance(event, Collective))
        followed.extend(gap[2] for batch in follower.poll() for gap in batch.gaps)  # type: ignore[union-attr]

    for number in range(14):
        for place in (number, number + 0.5):
            if place in polled_at:
                poll()
            log.complete(log.issue(number, 1))
        log.next_segment()
    join(tmp_path)
    assert len(event_segments(tmp_path)) == 3
    poll()
    poll()
    assert given == [*range(28)] and followed == given[1:]


def test_who_begins_within_what_was_joined_knows_the_rank(tmp_path: Path) -> None:
    long_log(tmp_path, 14)
    join(tmp_path)
    follower = LogFollower(tmp_path, 5)
    issued = [gap[2] for batch in follower.poll() if isinstance(batch, Batch) for gap in batch.gaps]
    assert issued == [*range(21, 56)] and (follower.rank, follower.pid) == (0, 4711)


def test_whoever_follows_is_told_once_what_comes_before_damage(tmp_path: Path) -> None:
    path = joined_with(tmp_path, {})
    place = next(part for part in log_parts(tmp_path) if part.number == 3).offset(8)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(fmt.RECORD.pack(12, 1, 0))
    reader = LogReader(tmp_path)
    assert [event.record_id for event in reader.poll() if isinstance(event, Collective)] == [*range(12)]
    with pytest.raises(CapsuleError, match="in a record of 12 bytes"):
        reader.poll()


@pytest.mark.parametrize(
    ("most_bytes", "left"), [(PARTS * SEGMENT_BYTES, [0, 1, 5, 6, 7, 11, 13]), (JOINED_BYTES, [0, 1, 6, 7, 13])]
)
def test_what_was_cut_or_joined_already_stays(tmp_path: Path, most_bytes: int, left: list[int]) -> None:
    """It keeps none of the others from being joined."""
    log = long_log(tmp_path, 14)
    path = log.folder / "events.00006.seg"
    path.write_bytes(path.read_bytes()[:200])
    join(tmp_path, most_bytes)
    assert numbers(tmp_path) == left
    files = sorted(tmp_path.iterdir())
    join(tmp_path, most_bytes)
    assert sorted(tmp_path.iterdir()) == files


@pytest.mark.parametrize(("room", "left"), [(9, [0, 1, 9, 13]), (3, [0, *range(1, 13, 2), 13]), (1, [*range(14)])])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get)
def test_where_there_is_no_room_for_all_files_are_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, left: list[int], error: int
) -> None:
    """So many segments fit."""
    long_log(tmp_path, 14)
    whole = read_log(tmp_path)

    def put_in_little_room(path: Path, chunks: Iterable[bytes]) -> None:
        data = b"".join(chunks)
        first, last = (int(number) for number in path.name.split(".")[1].split("-"))
        if last - first >= room:
            raise OSError(error, os.strerror(error))
        put(path, [data])

    monkeypatch.setattr(joining, "put", put_in_little_room)
    join(tmp_path)
    assert numbers(tmp_path) == left
    assert read_log(tmp_path) == whole


def test_another_error_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_log(tmp_path, 14)

    def fails(_path: Path, _chunks: Iterable[bytes]) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(joining, "put", fails)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        join(tmp_path)


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
