"""The payload window of the Python recorder goes by whole segments: never less than was asked for, never more bytes."""

from __future__ import annotations

from pathlib import Path

from prismdbg.rank.log_writer import PayloadWriter

SEGMENT = 1 << 20


def kept(folder: Path) -> list[int]:
    return sorted(int(path.name.split(".")[1]) for path in folder.glob("payload.*.seg"))


def test_a_limit_below_one_segment_holds(tmp_path: Path) -> None:
    window = PayloadWriter(tmp_path, SEGMENT)
    limit = SEGMENT // 8
    for step in range(200):
        window.write([memoryview(bytes(1000))], step, limit)
        assert window.total_bytes <= limit
    assert window.total_bytes > limit // 2, "the window is not emptied by removing one segment"
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit


def test_no_limit(tmp_path: Path) -> None:
    window = PayloadWriter(tmp_path, SEGMENT)
    for step in range(20):
        window.write([memoryview(bytes(SEGMENT // 2))], step, 0)
    assert kept(tmp_path) == list(range(10))


def test_steps_go_once_their_whole_segment_is_older(tmp_path: Path) -> None:
    window = PayloadWriter(tmp_path, SEGMENT)
    for step in range(6):  # two steps a segment
        window.write([memoryview(bytes(SEGMENT // 2))], step, 0)
    window.drop_before(3)
    assert kept(tmp_path) == [1, 2], "step 2 stays, for it shares a segment with step 3"
