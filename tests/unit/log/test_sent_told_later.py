"""What was sent is looked at by a device, which says it after the issue: in the record of the collective's end."""

from pathlib import Path

import pytest

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.batch import Batch
from prismdbg.capsule.log.follower import LogFollower
from prismdbg.capsule.log.reader import read_log
from prismdbg.errors import CapsuleError
from prismdbg.log import step_rows
from prismdbg.log.columns import read_columns, read_whole
from prismdbg.log.summary import summarize
from prismdbg.model.fingerprint_arithmetic import as_signed
from tests.tiny_log import TinyLog

NONE = 0
NAN = fmt.CompleteFlag.SENT_NONFINITE


def three_calls(folder: Path) -> TinyLog:
    """The first was looked at when it was issued, the second later and has NaN in it, the third has not ended."""
    log = TinyLog(folder)
    log.complete(log.issue(0, 1))
    log.complete(log.issue(0, 2, flags=NONE), b"received", sent=(1 << 64) - 5, flags=NAN)
    log.issue(0, 3, flags=NONE)
    return log


def test_both_readers_have_the_fingerprint_of_a_call_that_has_ended(tmp_path: Path) -> None:
    three_calls(tmp_path)
    columns = read_columns(tmp_path)
    first, second, third = read_log(tmp_path).collectives
    assert [c.fingerprint for c in (first, second, third)] == [0xABC, (1 << 64) - 5, None]
    assert [c.sent_nonfinite for c in (first, second, third)] == [False, True, False]
    assert columns.has_fingerprint.tolist() == [True, True, False]
    assert columns.fingerprint.tolist()[:2] == [0xABC, as_signed((1 << 64) - 5)]
    assert columns.sent_nonfinite.tolist() == [False, True, False]
    assert [columns.collective(row) for row in range(3)] == [first, second, third]


def test_before_its_end_a_call_says_nothing_of_what_it_sends(tmp_path: Path) -> None:
    log = three_calls(tmp_path)
    log.complete(log.issue(0, 4))
    before = read_columns(tmp_path).before(2500)
    told = [(bool(before.has_fingerprint[row]), bool(before.sent_nonfinite[row])) for row in range(4)]
    assert told == [(True, False), (False, False), (False, False), (True, False)]
    assert before.fingerprint[[0, 1, 3]].tolist() == [0xABC, 0, 0xABC + 3]
    for row in range(4):
        call = before.collective(row)
        assert (call.fingerprint is not None, call.sent_nonfinite) == told[row]


def test_a_supervisor_hears_of_it_when_it_ends(tmp_path: Path) -> None:
    three_calls(tmp_path)
    batches = [event for event in LogFollower(tmp_path).poll() if isinstance(event, Batch)]
    assert [(c.record_id, c.sent_nonfinite) for batch in batches for c in batch.notable] == [(1, True)]


def test_the_summary_counts_it_and_keeps_the_first(tmp_path: Path) -> None:
    log = three_calls(tmp_path)
    log.next_segment()
    log.complete(log.issue(1, 1, flags=NONE), sent=7, flags=NAN)
    summarize(tmp_path)
    rows = read_columns(tmp_path, newest_bytes=1).summary
    assert rows["nonfinite"].tolist()[:1] == [1]
    kept = read_columns(tmp_path, newest_bytes=1)
    assert kept.record_id[kept.sent_nonfinite].tolist() == [1, 3]
    assert step_rows.NO_ROWS.dtype == rows.dtype


def test_the_summary_keeps_the_first_that_was_sent_also_if_it_ends_later(tmp_path: Path) -> None:
    """On two streams: the second call ends in the first segment, the first one in the second."""
    log = TinyLog(tmp_path)
    first, second = log.issue(0, 1, flags=NONE), log.issue(0, 2, flags=NONE)
    log.complete(second, sent=7, flags=NAN)
    log.next_segment()
    log.complete(first, sent=5, flags=NAN)
    log.next_segment()
    log.issue(1, 1, flags=NONE)
    summarize(tmp_path)
    kept = read_columns(tmp_path, newest_bytes=1)
    assert kept.record_id[kept.sent_nonfinite].tolist()[:1] == [first]


@pytest.mark.parametrize("read", [read_log, read_whole])
def test_a_record_without_the_room_for_it_is_damage(tmp_path: Path, read: object) -> None:
    log = TinyLog(tmp_path)
    log.complete(log.issue(0, 1), flags=fmt.CompleteFlag.HAS_FINGERPRINT)
    with pytest.raises(CapsuleError, match="damaged"):
        read(tmp_path)  # type: ignore[operator]
