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
