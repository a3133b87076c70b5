"""What a killed writer left half made is removed by the next writer, and by nobody while it is being written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from prismdbg.capsule.partial import partial_folder

DIES = """
import os, signal, sys
from pathlib import Path
from prismdbg.capsule.partial import partial_folder
with partial_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("made")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def partials(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.partial-*"))


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", DIES, tmp_path / "first"], check=False).returncode == -9
    assert len(partials(tmp_path)) == 1
    with partial_folder(tmp_path / "second") as folder:
        assert partials(tmp_path) == [folder]
    assert partials(tmp_path) == []


def test_nobody_removes_what_is_being_written(tmp_path: Path) -> None:
    with partial_folder(tmp_path / "first") as first, partial_folder(tmp_path / "second") as second:
        assert partials(tmp_path) == sorted([first, second])


def test_a_link_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / ".x.partial-y").symlink_to(tmp_path / "theirs")
    with partial_folder(tmp_path / "first"):
        assert (tmp_path / "theirs").is_dir()
