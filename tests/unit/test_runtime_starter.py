"""Parts of the starter that need no namespace: laying files, choosing PIDs and streams."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from starter_parts import starter_parts

OWNER = (os.getuid(), os.getgid())


@pytest.fixture(scope="module")
def starter() -> Any:
    return starter_parts()


def file(source: Path | None, target: Path, **more: object) -> dict[str, object]:
    told: dict[str, object] = {"source": source and str(source), "target": str(target), "mode": 0o640}
    return {**told, "size_bytes": None, "mtime_ns": None, **more}


def test_a_file_is_laid_as_it_was(starter: Any, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "new" / "folder" / "file"
    source.write_text("what it was and more")
    starter.lay_file(file(source, target, size_bytes=11, mtime_ns=5_000_000_007), OWNER)
    assert target.read_text() == "what it was"
    assert target.stat().st_mode & 0o777 == 0o640
    assert target.stat().st_mtime_ns == 5_000_000_007


def test_one_without_content_has_only_its_length(starter: Any, tmp_path: Path) -> None:
    starter.lay_file(file(None, tmp_path / "log", size_bytes=10 << 30), OWNER)
    status = (tmp_path / "log").stat()
    assert status.st_size == 10 << 30
    assert status.st_blocks < 100


def test_one_that_lies_there_anyway_is_not_touched(starter: Any, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("content")
    there.chmod(0o444)
    before = there.stat()
    starter.lay_file(file(there, there), OWNER)
    assert there.stat() == before
    starter.lay_file(file(there, there, size_bytes=3), OWNER)
    assert there.read_text() == "con"


def test_pid_1_cannot_be_given_again(starter: Any) -> None:
    with pytest.raises(starter.PlaceError, match="PID 1"):
        starter.keep_clear_of([1, 7])


def test_streams_are_replaced_once_each(starter: Any, tmp_path: Path) -> None:
    standards = [(0, "dev/null"), (1, "pipe:[7]"), (2, "pipe:[7]")]
    streams = starter.standard_streams(standards, starter.hold_output(str(tmp_path / "output")))
    try:
        assert list(streams) == ["pipe:[7]"]
        os.write(streams["pipe:[7]"], b"said")
        assert (tmp_path / "output").read_text() == "said"
    finally:
        for number in streams.values():
            os.close(number)


def test_standard_input_reads_nothing(starter: Any, tmp_path: Path) -> None:
    streams = starter.standard_streams(
        [(0, "pipe:[3]"), (1, "home/log")], starter.hold_output(str(tmp_path / "output"))
    )
    try:
        assert os.read(streams["pipe:[3]"], 1) == b""
        assert len(set(streams.values())) == 2
    finally:
        for number in streams.values():
            os.close(number)


def test_which_mounts_are_taken_over(starter: Any) -> None:
    points = starter.mount_points()
    assert points["/"] is True
    assert points["/proc"] is False
    assert not any(taken for point, taken in points.items() if point.startswith(("/proc/", "/sys/", "/dev/")))


def test_an_event_is_one_line(starter: Any, tmp_path: Path) -> None:
    report = starter.Reporter(tmp_path / "status")
    report("starting", pid=3)
    report("failed", what="two\nlines")
    assert (tmp_path / "status").read_text().count("\n") == 2


def test_a_client_that_died_before_the_starter_looked_is_gone(starter: Any, tmp_path: Path) -> None:
    """Such a FIFO never hangs up: nobody was there when it was opened."""
    path = tmp_path / "lifeline"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert starter.nobody_holds(reading)
        held = os.open(path, os.O_RDWR)
        assert not starter.nobody_holds(reading)
        os.close(held)
        assert starter.nobody_holds(reading)
    finally:
        os.close(reading)
