"""A log's times are of one clock, whoever sets the machine's clock while the job runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.reader import LogReader, event_segments
from prismdbg.log.columns import read_columns
from prismdbg.log.folding import fold, split_before
from prismdbg.log.joining import join
from prismdbg.log.summary import preface_of_capsule, summarize

HOUR_NS = 3600 * 10**9
SEGMENT_BYTES = 1 << 12
FIRST_NS = 10**18 - 10**9  # as TinyLog has it


def written(folder: Path, step_ns: int) -> TinyLog:
    """The clock is set once more with each segment."""
    log = TinyLog(folder, segment_bytes=SEGMENT_BYTES)
    for number in range(8):
        if number:
            log.next_segment()
            head = fmt.HEADER.pack(
                fmt.MAGIC, fmt.VERSION, log.index, 0, 4711, 10**18 + number * step_ns, 10**9, SEGMENT_BYTES
            )
            log.write(0, head)
        log.complete(log.issue(number, 1))
    return log


@pytest.mark.parametrize("step_ns", [HOUR_NS, -HOUR_NS, 17])
@pytest.mark.parametrize("by", ["nothing", "summary", "fold", "join"])
def test_the_offset_is_that_of_the_first_segment(by: str, step_ns: int, tmp_path: Path) -> None:
    log = written(tmp_path / "0", step_ns)
    if by != "nothing":
        summarize(log.folder)
    if by == "fold":
        fold(log.folder, 3 * SEGMENT_BYTES)
        assert len(event_segments(log.folder)) < 8
    if by == "join":
        join(log.folder)
    followed = LogReader(log.folder)
    followed.poll()
    offsets = [read_columns(log.folder, *how).wall_offset_ns for how in ((), (0,), (None, 2))]
    assert {*offsets, followed.wall_offset_ns} == {FIRST_NS}


def test_a_capsule_has_that_of_its_run(tmp_path: Path) -> None:
    log = written(tmp_path / "0", HOUR_NS)
    summarize(log.folder)
    before, rest = split_before(log.folder, 5)
    copied = tmp_path / "capsule"
    copied.mkdir()
    (copied / fmt.event_segment(0)).write_bytes(preface_of_capsule(log.folder, before, rest[0].number))
    for segment in rest:
        (copied / segment.path.name).write_bytes(segment.path.read_bytes())
    assert before and read_columns(copied).wall_offset_ns == FIRST_NS
