"""What a rank says of its own process, whatever the program has made of it."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from prismdbg.capsule import json_text
from prismdbg.capsule.rank_json import RankJson, read_rank, variables_of
from prismdbg.rank.program import process_runs
from prismdbg.rank.recording import process_tree, recorded_rank
from prismdbg.rank.recording.inputs import opened_files, started_in
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
from prismdbg.rank.recording.recorded_rank import describe_process


def described(tmp_path: Path) -> RankJson:
    """As it is written and read."""
    path = tmp_path / "rank.json"
    path.write_text(json_text.dump(describe_process(0, tmp_path / "socket", "python")))
    return read_rank(path)


def test_a_search_path_with_what_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sys.path.insert(0, Path(__file__).parent)` helps nobody, and Python passes over it."""
    odd: list[Any] = [tmp_path / "code", "", "/somewhere/inject", Path("/elsewhere/inject"), b"/bytes", None, 3]
    monkeypatch.setattr(sys, "path", odd)
    assert described(tmp_path)["sys_path"] == [str(tmp_path / "code"), ""]


def test_arguments_that_are_no_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [Path("train.py"), "--seed", 5, None])
    assert described(tmp_path)["argv"] == ["train.py", "--seed", "5", "None"]


def test_variables_that_the_program_set_itself_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mlflow sets one when it is imported, whose name is that of a secret: a replay would start without it."""
    monkeypatch.setattr(started_in, "_variables", {"STAYS": "1", "GOES": "2", "CHANGES": "3", "PYTHONPATH": "/code"})
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in {"STAYS": "1", "CHANGES": "4", "PYTHONPATH": "/code", "MADE_SESSION_ID": "5"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(process_tree.VARIABLE, "")
    process_tree.tell_those_below()  # not the program's
    rank = described(tmp_path)
    assert rank["environment"] == {"STAYS": "1", "GOES": "2", "CHANGES": "3", "PYTHONPATH": "/code"}
    assert rank["variables_set"] == {"CHANGES": "4", "MADE_SESSION_ID": "5"}
    assert variables_of(rank) == {"STAYS": "1", "GOES": "2", "CHANGES": "4", "PYTHONPATH": "/code"} | {
        "MADE_SESSION_ID": "5"
    }


@pytest.mark.parametrize("by_multiprocessing", [True, False])
def test_a_forked_rank_starts_with_those_of_its_program_if_that_can_be_started_again(
    by_multiprocessing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(started_in, "_pid", os.getppid())
    monkeypatch.setattr(process_runs, "forked", lambda: ["1 __main__.train"] if by_multiprocessing else [])
    monkeypatch.setenv("MADE", "1")
    rank = described(tmp_path)
    assert ("MADE" in rank["variables_set"], "MADE" in rank["environment"]) == (
        by_multiprocessing,
        not by_multiprocessing,
    )


@pytest.mark.parametrize("text", [None, ""])
def test_numbers_that_a_launcher_did_not_set(text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`export RANK=$SLURM_PROCID` of a script that was started without Slurm."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
        if text is not None:
            monkeypatch.setenv(name, text)
    assert recorded_rank._rank_number() == 0 and described(tmp_path)["world_size"] == 1


def test_a_program_in_a_folder_that_was_removed_is_watched_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its script has a relative name, which nobody can follow any more."""
    watched: list[Any] = []

    def removed() -> str:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(os, "getcwd", removed)
    monkeypatch.setattr(sys, "orig_argv", ["python", "train.py"])
    monkeypatch.setattr(sys, "addaudithook", watched.append)
    monkeypatch.setattr(opened_files, "watch_torch_save", watched.append)
    files = OpenedFiles(str(tmp_path))
    files.install()
    seen: list[str] = []
    files.listen(lambda kind, path, at_ns: seen.append(path))
    assert len(watched) == 2 and __file__ in seen, "modules have whole names"
