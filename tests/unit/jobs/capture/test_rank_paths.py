"""Which paths of its node a rank will want again, from the notes in its log and what it was told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prismdbg.capsule.log.events import Note, RankLog
from prismdbg.jobs.capture.rank_paths import programs_started, rank_paths
from prismdbg.model.moment import Moment


@pytest.fixture
def rank(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "train.py").write_text("")
    return {"argv": ["train.py"], "orig_argv": ["python", "train.py"], "cwd": str(tmp_path), "environment": {}}


def log(*notes: tuple[str, Path, str]) -> RankLog:
    made = RankLog(0, 1, 0)
    made.notes += [Note(kind, 0, {"path": str(path), "moment": moment}) for kind, path, moment in notes]
    return made


def test_files_are_those_it_read_and_its_script(rank: dict[str, Any], tmp_path: Path) -> None:
    found = rank_paths(log(("file", tmp_path / "data", "0.0")), rank, None)
    assert found.files == (str(tmp_path / "data"), str(tmp_path / "train.py"))
    assert found.absent == ()


def test_what_it_made_after_a_was_not_there(rank: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "deep").mkdir(parents=True)
    state = out / "state"
    notes = log(("made", out, "5.1"), ("made", state, "6.0"), ("file", state, "7.0"), ("folder", out / "deep", "6.0"))
    from_start = rank_paths(notes, rank, None)
    assert from_start.absent == (str(out), str(out / "state"))
    assert from_start.folders == (str(tmp_path),) and from_start.files == (str(tmp_path / "train.py"),)
    between = rank_paths(notes, rank, Moment(6))
    assert between.absent == (str(out / "state"),)
    assert between.folders == (str(tmp_path), str(out / "deep"))
    later = rank_paths(notes, rank, Moment(8))
    assert later.absent == () and str(out / "state") in later.files


def test_a_library_that_it_built_is_there_from_the_start(rank: dict[str, Any], tmp_path: Path) -> None:
    folder, source, library = tmp_path / "built", tmp_path / "built" / "main.cpp", tmp_path / "built" / "own.so"
    notes = [("made", folder, "0.0"), ("made", source, "0.0"), ("file", library, "0.0")]
    without = rank_paths(log(*notes), rank, None)
    assert str(library) not in without.files and without.absent == (str(folder), str(source))
    found = rank_paths(log(*notes, ("built", library, "0.0")), rank, None)
    assert str(library) in found.files and found.absent == (str(source),), "it wrote its text, and read none"
    read = rank_paths(log(*notes, ("file", source, "0.0"), ("built", library, "0.0")), rank, None)
    assert {str(library), str(source)} <= set(read.files) and read.absent == ()


def test_a_damaged_note_of_a_program_is_none() -> None:
    notes = [("ran", Path(path), "0.0") for path in ("/usr/bin/env", "/usr/bin/x\0y", "/usr/bin/\ud800")]
    assert programs_started(log(*notes)) == ("/usr/bin/env",)


@pytest.mark.parametrize("told", ["argument", "option", "relative", "environment", "a file in it"])
def test_folders_are_also_those_it_was_told_of(rank: dict[str, Any], tmp_path: Path, told: str) -> None:
    out = tmp_path / "results" / "out"
    out.mkdir(parents=True)
    words = {
        "argument": [str(out)],
        "option": [f"--out={out}"],
        "relative": ["results/out"],
        "a file in it": [str(out / "model.pt")],
    }
    rank["orig_argv"] += words.get(told, [])
    rank["environment"] |= {"OUT": str(out)} if told == "environment" else {}
    assert str(out) in rank_paths(log(), rank, None).folders


def test_words_that_are_no_paths_are_no_folders(rank: dict[str, Any]) -> None:
    rank["orig_argv"] += ["--lr=1e-3", "a/b\0c", "/" + "x" * 5000, "https://host/data", "no/such/folder"]
    rank["environment"] = {"PATH": "/bin:/usr/bin", "LS_COLORS": "di=01;34"}
    assert rank_paths(log(), rank, None).folders == (rank["cwd"],)


def test_the_folder_that_it_was_started_in_is_there_though_nothing_names_it(
    rank: dict[str, Any], tmp_path: Path
) -> None:
    rank["cwd"] = str(tmp_path / "work")
    assert rank_paths(log(), rank, None).folders == ()  # it was removed
    (tmp_path / "work").mkdir()
    assert rank_paths(log(), rank, None).folders == (rank["cwd"],)
