"""The payload window of the Python recorder goes by whole segments: never less than was asked for, never more bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.rank.recording.log_writer import PayloadWriter
from prismdbg.rank.recording.write_queue import WriteQueue
from prismdbg.settings.rank_config import Mode, RankConfig

SEGMENT = 1 << 20


def kept(folder: Path) -> list[int]:
    return sorted(int(path.name.split(".")[1]) for path in folder.glob("payload.*.seg"))


def test_a_limit_below_one_segment_holds(tmp_path: Path) -> None:
    window = PayloadWriter(WriteQueue(is_direct=True), tmp_path, SEGMENT)
    limit = SEGMENT // 8
    for step in range(200):
        window.write([memoryview(bytes(1000))], step, limit)
        assert window.total_bytes <= limit
    assert window.total_bytes > limit // 2, "the window is not emptied by removing one segment"
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= limit


@pytest.mark.parametrize(
    ("window_steps", "checkpoint_every", "window"),
    [
        (0, 0, (False, 0)),
        (3, 0, (True, 3)),
        (-1, 0, (True, 0)),  # all: no limit
        (0, 50, (True, 1)),  # and what follows the older checkpoint
        (3, 50, (True, 3)),
        (-1, 50, (True, 0)),
    ],
)
def test_checkpoints_do_not_cancel_what_was_asked_for(
    window_steps: int, checkpoint_every: int, window: tuple[bool, int]
) -> None:
    config = RankConfig(
        mode=Mode.RECORD, socket_dir="", window_steps=window_steps, checkpoint_every=checkpoint_every, window_bytes=9
    )
    assert config.payload_window == (*window, 9)


def test_no_limit(tmp_path: Path) -> None:
    window = PayloadWriter(WriteQueue(is_direct=True), tmp_path, SEGMENT)
    for step in range(20):
        window.write([memoryview(bytes(SEGMENT // 2))], step, 0)
    assert kept(tmp_path) == list(range(10))


def test_steps_go_once_their_whole_segment_is_older(tmp_path: Path) -> None:
    window = PayloadWriter(WriteQueue(is_direct=True), tmp_path, SEGMENT)
    for step in range(6):  # two steps a segment
        window.write([memoryview(bytes(SEGMENT // 2))], step, 0)
    window.drop_before(3)
    assert kept(tmp_path) == [1, 2], "step 2 stays, for it shares a segment with step 3"


def test_small_payloads_of_the_beginning_outlive_what_is_larger(tmp_path: Path) -> None:
    window = PayloadWriter(WriteQueue(is_direct=True), tmp_path, SEGMENT)
    limit = 4 * SEGMENT
    assert window.keep_small(64 << 10, SEGMENT) == (0, 0)
    write = lambda size: window.write([memoryview(bytes([size % 251]) * size)], 0, limit)  # noqa: E731
    places = {size: write(size) for size in (100, 64 << 10)}
    assert write(limit + 1) is None, "alone is left out"
    large = [write(SEGMENT) for _ in range(8)]
    window.drop_before(7)
    places[200] = write(200)
    for size, place in places.items():
        assert place == (0, place[1], size)  # type: ignore[index]
        data = (tmp_path / "payload.00000.seg").read_bytes()[place[1] :][:size]  # type: ignore[index]
        assert data == bytes([size % 251]) * size
    assert [place and place[0] for place in large] == list(range(1, 9)) and kept(tmp_path) == [0, 8]
    assert window.keep_small(0, 0) == (limit + 1 + 7 * SEGMENT, 0)
    for step in range(1, 9):
        window.write([memoryview(bytes(SEGMENT))], step, limit)
    assert kept(tmp_path) == [13, 14, 15, 16], "then they go first, as any others"
    assert window.keep_small(0, 0) == (0, 0)


def test_small_payloads_of_the_beginning_are_bounded_too(tmp_path: Path) -> None:
    window = PayloadWriter(WriteQueue(is_direct=True), tmp_path, SEGMENT)
    window.keep_small(64 << 10, 10 * 1024)
    places = [window.write([memoryview(bytes(size))], 0, 4 * SEGMENT) for size in (*[4096] * 5, 1024, 1024)]
    assert [place and place[0] for place in places] == [0, 0, 1, 1, 1, 0, 0]
    assert window.keep_small(0, 0) == (0, 3 * 4096)
