"""Where a run folder can be made, and what is said where it cannot."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from prismdbg.errors import UsageError
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.jobs.storage.run_report import report


def test_a_new_one_may_stand_in_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert RunFolder.new(tmp_path / "run").ranks.is_dir()


@pytest.mark.parametrize("was", [None, 0o755, 0o777])
def test_it_is_for_its_owner_alone(was: int | None, tmp_path: Path) -> None:
    """Also an empty folder that was there: the environment of the job lies in it."""
    if was is not None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run").chmod(was)
    assert stat.S_IMODE(RunFolder.new(tmp_path / "run").path.stat().st_mode) == 0o700


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("")
    with pytest.raises(UsageError, match="exists and is not empty"):
        RunFolder.new(tmp_path / "run")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(UsageError, match="run is a file"):
        RunFolder.new(tmp_path / "run")


@pytest.mark.parametrize("name", ["2026-11-24T23:13/run", "run:1"])
def test_python_can_load_the_recorder_from_it(name: str, tmp_path: Path) -> None:
    """A colon would cut its name in two where PYTHONPATH is read, and nothing would be recorded."""
    with pytest.raises(UsageError, match="contains a colon"):
        RunFolder.new(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_one_that_cannot_be_made_is_an_error_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="run cannot be created: Not a directory"):
        RunFolder.new(tmp_path / "file" / "run")


def test_an_emulation_that_was_interrupted_does_not_blame_the_job(tmp_path: Path) -> None:
    run = RunFolder.new(tmp_path / "run")
    emulated = {"world": 8, "mesh": {"dp": 8}, "ranks": [0], "classes": None, "steps": 0, "peers": [], "seed": 0}
    write_json(run.run_json, {"command": ["python", "train.py"], "emulated": emulated})
    (line,) = report(run.path)
    assert "no rank finished" in line
