"""What a file was when it was read is kept before the program writes to it; nothing of that reaches the program."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from prismdbg.capsule.log.events import Note, RankLog
from prismdbg.jobs.capture.rank_paths import changed_after_read, copies_as_read, opened_and_gone
from prismdbg.rank.recording.inputs import overwritten
from prismdbg.rank.recording.inputs.overwritten import Overwritten, watch_torch_save
from prismdbg.settings.overwritten_copies import FOLDER, prefix

ROOT = Path(__file__).resolve().parents[5]
NOW_NS = 1_700_000_000 * 10**9
SECOND_NS = 10**9
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
files = OpenedFiles(sys.argv[2])
files.install()
def read(name):
    with open(name) as file:
        return file.read()
for name in ("replaced", "in place", "truncated", "removed", "native"):
    read(name)
open("in place", "w").write("later")
open("new", "w").write("later")
os.replace("new", "replaced")
os.truncate("truncated", 0)
os.remove("removed")
files.about_to_write("native")
open("added to", "r+").write("later")
open("never read", "w").write("later")
open("made", "w").write("mine"); read("made"); open("made", "w").write("later")
"""


def kept(run: Path) -> dict[str, str]:
    """Contents by the beginning of the name."""
    return {path.name.partition(".")[0] + ".": path.read_text() for path in (run / FOLDER).iterdir()}


def test_every_way_to_write_over_a_file(tmp_path: Path) -> None:
    run, work = tmp_path / "run", tmp_path / "work"
    work.mkdir()
    run.mkdir()
    wanted = ("replaced", "in place", "truncated", "removed", "native", "added to")
    for name in (*wanted, "never read"):
        (work / name).write_text(f"was {name}")
    subprocess.run([sys.executable, "-c", PROGRAM, str(ROOT), str(run)], cwd=work, check=True, timeout=60)
    assert kept(run) == {prefix(str(work / name)): f"was {name}" for name in wanted}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    path = tmp_path / "state"
    path.write_text("as read")
    path.chmod(0o640)
    os.utime(path, ns=(NOW_NS, NOW_NS))
    return path


def test_a_copy_has_the_time_and_mode_of_the_file_and_the_first_one_stays(file: Path) -> None:
    run = file.parent / "run"
    Overwritten(str(run)).keep(str(file))
    file.write_text("other!!")
    os.utime(file, ns=(NOW_NS, NOW_NS))
    Overwritten(str(run)).keep(str(file))  # another rank
    (copy,) = (run / FOLDER).iterdir()
    assert (copy.read_text(), copy.stat().st_mtime_ns, copy.stat().st_mode & 0o777) == ("as read", NOW_NS, 0o640)
    assert (run / FOLDER).stat().st_mode & 0o777 == 0o700


def too_large(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(overwritten, "MOST_BYTES", 3)


def too_much(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(overwritten, "MOST_IN_ALL", 3)


def a_server(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(overwritten, "is_local", lambda folder: False)


def no_room(file: Path, patch: pytest.MonkeyPatch) -> None:
    (file.parent / "run" / FOLDER).write_text("in the way")


def a_secret(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(overwritten, "is_credential", lambda path: path == str(file))


def a_pipe(file: Path, patch: pytest.MonkeyPatch) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    "change", [too_large, too_much, a_server, no_room, a_secret, a_pipe, lambda file, _: file.unlink()]
)
def test_where_nothing_is_kept_nothing_is_raised(
    change: Callable[[Path, pytest.MonkeyPatch], None], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(file, monkeypatch)
    Overwritten(str(file.parent / "run")).keep(str(file))
    folder = file.parent / "run" / FOLDER
    assert not folder.is_dir() or not list(folder.iterdir())


@pytest.mark.parametrize(
    ("read_s", "a_s", "found"),
    [
        (1, None, "as read"),  # read after it was written, before it was written over
        (-1, None, None),  # what was kept is younger than that
        (1, 1, "as read"),  # written over after the start moment
        (1, 10**9, None),  # and before it: what it was then is not known
    ],
)
def test_a_copy_counts_where_it_is_what_the_start_moment_had(
    file: Path, read_s: int, a_s: int | None, found: str | None
) -> None:
    copies, path = file.parent / "run" / FOLDER, str(file)
    Overwritten(str(file.parent / "run")).keep(path)
    log = RankLog(0, 1, 0)
    log.notes.append(Note("file", NOW_NS * 2, {"path": path, "seen_ns": NOW_NS + read_s * SECOND_NS}))
    chosen = copies_as_read(log, copies, [path], None if a_s is None else NOW_NS + a_s * SECOND_NS)
    assert {name: copy.read_text() for name, copy in chosen.items()} == ({path: found} if found else {})


def test_torch_save_tells_before_it_writes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens the file in C++, of which Python says nothing."""
    monkeypatch.setattr(torch.serialization, "_open_zipfile_writer", torch.serialization._open_zipfile_writer)
    told: list[str] = []
    watch_torch_save(lambda path: told.append(Path(path).read_text()))
    torch.save({}, file)
    assert told == ["as read"]
    torch.save({}, io.BytesIO())
    assert len(told) == 1


@pytest.mark.parametrize(("written_s", "is_changed"), [(-1, False), (1, True), (None, True)])
def test_a_file_that_was_written_to_after_it_was_read_is_named(
    file: Path, written_s: int | None, is_changed: bool
) -> None:
    """Whoever wrote: its time tells. None: it was removed."""
    if written_s is None:
        file.unlink()
    else:
        os.utime(file, ns=(NOW_NS + written_s * SECOND_NS,) * 2)
    log = RankLog(0, 1, 0)
    log.notes.append(Note("file", NOW_NS, {"path": str(file), "seen_ns": NOW_NS}))
    found = changed_after_read(log, {"cwd": str(file.parent), "argv": []}, NOW_NS)
    assert list(found) == [str(file)] * is_changed


def test_a_file_of_another_rank_that_was_removed_is_named(file: Path) -> None:
    """What the rank makes itself it makes again in a replay."""
    own, gone = file.with_name("own"), file.with_name("theirs")
    log = RankLog(0, 1, 0)
    log.notes += [Note("file", NOW_NS, {"path": str(path), "seen_ns": NOW_NS}) for path in (file, own, gone, gone)]
    log.notes.append(Note("made", NOW_NS, {"path": str(own), "moment": "0.1"}))
    assert opened_and_gone(log, {"cwd": str(file.parent), "argv": []}) == [str(gone)]


def test_what_another_rank_writes_meanwhile_is_no_copy(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.read

    def slow(descriptor: int, size: int) -> bytes:
        os.truncate(file, 2)  # another rank opens it for writing
        return read(descriptor, size)

    monkeypatch.setattr(overwritten.os, "read", slow)
    Overwritten(str(file.parent / "run")).keep(str(file))
    assert not list((file.parent / "run" / FOLDER).iterdir())


LOCKS = """
import fcntl, os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.overwritten import Overwritten
other = "import fcntl; fcntl.lockf(open('state', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
file = open("state")
fcntl.lockf(file, fcntl.LOCK_SH)
Overwritten(sys.argv[2]).keep(os.path.abspath("state"))
sys.exit(subprocess.run([sys.executable, "-c", other], stderr=subprocess.DEVNULL).returncode)
"""


def test_a_lock_of_the_program_is_not_given_up(tmp_path: Path) -> None:
    """The kernel drops a process's locks of a file when any descriptor of it is closed."""
    (tmp_path / "state").write_text("as it was read")
    line = [sys.executable, "-c", LOCKS, str(ROOT), str(tmp_path / "run")]
    (tmp_path / "run").mkdir()
    assert subprocess.run(line, cwd=tmp_path, timeout=60).returncode == 1, "another process got the lock"
