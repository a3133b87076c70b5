"""A log read for a few of its steps: it lacks calls of other steps, and what is there is as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.errors import CapsuleError
from prismdbg.log import columns
from prismdbg.log.columns import read_near
from prismdbg.log.joining import join
from prismdbg.log.rank_log import decoded, rank_log, read_log

SEGMENT_BYTES = 1 << 11
EACH = 5  # calls of a segment


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyLog:
    """One step a segment. Call 7 fails; call 13 completes two segments later; segment 4 has no calls."""
    monkeypatch.setattr(columns, "LAST_BYTES", SEGMENT_BYTES + 1)
    log, late = TinyLog(tmp_path, segment_bytes=SEGMENT_BYTES), -1
    for segment in range(9):
        log.step(segment)
        for number in range(EACH if segment != 4 else 0):
            record = log.issue(segment, number + 1)
            if record == 13:
                late = record
            else:
                log.complete(record, status=fmt.Status.FAILED if record == 7 else fmt.Status.OK)
        if segment == 5:
            log.complete(late)
        if segment < 8:
            log.next_segment()
    return log


@pytest.mark.parametrize("joined", [False, True])
def test_it_has_these_steps_the_end_and_of_others_a_few(log: TinyLog, joined: bool) -> None:
    whole = decoded(read_log(log.folder))
    if joined:
        join(log.folder, 4 * SEGMENT_BYTES)
    found = rank_log(read_near(log.folder, range(2, 3)))
    ids = [call.record_id for call in found.collectives]
    ends = [0, 4, 5, 9, 15, 19, 20, 24, 25, 29]
    assert ids == sorted({7, *range(10, 15), *range(30, 40), *ends})
    assert list(found.collectives) == [whole.collectives[number] for number in ids]
    assert found.steps == whole.steps and found.notes == whole.notes and found.groups == whole.groups


def test_a_damaged_log_is_an_error(log: TinyLog) -> None:
    path = log.folder / fmt.event_segment(1)
    data = bytearray(path.read_bytes())
    data[64:68] = (12).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(CapsuleError, match="of 12 bytes"):
        read_near(log.folder, range(2, 3))
