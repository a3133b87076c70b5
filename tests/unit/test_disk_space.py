"""A run of tests ends before its disk is full, and says what fills it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from disk_space import MAX_FILE_BYTES, DiskSpace, files_of_any_size, largest


def item() -> Any:
    return SimpleNamespace(nodeid="test_x.py::test_y", session=SimpleNamespace(shouldstop=False))


def test_a_run_ends_where_little_is_left(tmp_path: Path) -> None:
    seen = item()
    DiskSpace(0, (tmp_path,)).pytest_runtest_teardown(seen)
    assert seen.session.shouldstop is False
    DiskSpace(1 << 60, (tmp_path,)).pytest_runtest_teardown(seen)
    said = str(seen.session.shouldstop)
    assert said.startswith(f"{tmp_path} has ") and "MiB left after test_x.py::test_y; the largest folders: " in said


def test_the_largest_folders(tmp_path: Path) -> None:
    for name, parts in (("one", (3 << 20,)), ("many", (1 << 20,) * 5), ("none", ())):
        (tmp_path / name).mkdir()
        for number, part in enumerate(parts):
            (tmp_path / name / str(number)).write_bytes(b"x" * part)
    (tmp_path / "sparse").touch()
    with files_of_any_size(), (tmp_path / "sparse").open("r+b") as file:
        file.truncate(1 << 40)
    assert [path.name for _, path in largest([tmp_path])][:2] == ["many", "one"]


def test_no_file_of_a_test_takes_the_whole_disk(tmp_path: Path) -> None:
    """Nor one of what it starts."""
    grow = "import os, sys; os.truncate(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), int(sys.argv[2]))"
    for size, fits in ((MAX_FILE_BYTES, True), (MAX_FILE_BYTES + 1, False)):
        command = [sys.executable, "-c", grow, str(tmp_path / "file"), str(size)]
        assert (subprocess.run(command, capture_output=True).returncode == 0) == fits
