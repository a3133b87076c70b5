"""The names that a capsule keeps of folders that the program listed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import wait_for

from prismdbg.capsule.log.events import Note, RankLog
from prismdbg.capsule.rank_json import read_rank
from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture import listed_folders
from prismdbg.jobs.capture.listed_folders import listed

ROOT = Path(__file__).parents[4]


def log(*folders: Path | str, at_ns: int | None = None) -> RankLog:
    made = RankLog(0, 1, 0)
    then = time.time_ns() + 1_000_000_000 if at_ns is None else at_ns
    made.notes += [Note("listed", then, {"path": str(folder)}) for folder in folders]
    return made


def test_files_that_were_not_read_are_names_and_folders_are_folders(tmp_path: Path) -> None:
    for name in ("read.txt", "other.txt", ".env", "made.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "class_a").mkdir()
    (tmp_path / "link.txt").symlink_to("other.txt")
    (tmp_path / "broken").symlink_to("nowhere")
    found = listed(log(tmp_path), (str(tmp_path / "read.txt"),), (str(tmp_path / "made.txt"),), "/home/me")
    assert found.names == tuple(str(tmp_path / name) for name in ("link.txt", "other.txt"))
    assert found.folders == (str(tmp_path), str(tmp_path / "class_a"))
    assert found.note == ""


def test_what_came_later_is_no_name(tmp_path: Path) -> None:
    """Of files and of folders, whichever rank made them; of a folder that only got more files since, it is one."""
    (tmp_path / "later.txt").write_text("x")
    (tmp_path / "later").mkdir()
    before = time.time_ns() - 3_600_000_000_000
    found = listed(log(tmp_path, at_ns=before), (), (), "")
    assert (found.names, found.folders) == ((), (str(tmp_path),))
    listed_ns = time.time_ns()
    wait_for(lambda: time.time_ns() > listed_ns + 20_000_000, 5, "the clock of the file system")
    (tmp_path / "later" / "more").mkdir()
    assert listed(log(tmp_path, at_ns=listed_ns), (), (), "").folders == (str(tmp_path), str(tmp_path / "later"))


def test_installations_homes_and_folders_of_everybody_are_left_out(tmp_path: Path) -> None:
    home, shared = tmp_path / "home", tmp_path / "shared"
    for folder in (home, shared):
        folder.mkdir()
        (folder / "file.txt").write_text("x")
    shared.chmod(0o1777)
    places = log(home, shared, "/", "/etc", "/usr/lib", "/proc/self", sys.prefix, Path(os.__file__).parent, "/nowhere")
    assert listed(places, (), (), str(home)).names == ()


def test_a_large_folder_is_cut_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed_folders, "MAX_LISTED_NAMES", 3)
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("x")
    found = listed(log(tmp_path), (), (), "")
    assert len(found.names) == 3 and "a replay lacks 2 of them" in found.note


def test_a_capsule_with_more_names_than_may_be_made_is_refused(tmp_path: Path) -> None:
    import json

    path = tmp_path / "rank.json"
    rank = {"cwd": "/", "argv": [], "environment": {}, "listed": [f"/data/{number}" for number in range(10_001)]}
    path.write_text(json.dumps(rank))
    with pytest.raises(CapsuleError, match="the limit is 10,000"):
        read_rank(path)


PROGRAM = """
import os, sys, glob, pathlib
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
files = OpenedFiles("/nowhere")
files.install()
os.chdir(sys.argv[2])
os.listdir("a"); list(os.scandir("b")); glob.glob("c/*.txt"); list(pathlib.Path("d").iterdir()); list(os.walk("e"))
os.listdir(); os.listdir(b"f")
sys.path.insert(0, os.path.join(sys.argv[2], "modules"))
import found_there
found = []
files.listen(lambda kind, path, _: found.append(f"{kind} {path}"))
print("\\n".join(line for line in found if line.startswith("listed")))
"""


def test_each_way_to_list_a_folder_is_noted_and_an_import_is_none(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    home = tmp_path / "home"
    for name in ("a", "b", "c", "d", "e", "f", "modules"):
        (home / name).mkdir(parents=True)
    (home / "modules" / "found_there.py").write_text("")
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(ROOT), str(home)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert set(done.stdout.splitlines()) == {f"listed {home / name}" for name in "abcdef"} | {f"listed {home}"}
