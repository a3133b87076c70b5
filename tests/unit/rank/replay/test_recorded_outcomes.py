"""A replayed rank gets from other programs what the recorded rank got."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for

from prismdbg.capsule.log.events import Note
from prismdbg.capsule.log.notes import PROGRAM
from prismdbg.rank.replay.recorded_outcomes import STAND_IN
from tests.unit.child_programs import failure, recorded, replaying

Started = Callable[[], Any]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """One that the recorded rank has, and that a replay may lack."""
    path = tmp_path / "program"
    write(path, "echo one; echo two >&2; exit 3")
    return path


def write(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def changed(path: Path) -> None:
    write(path, "echo other; exit 128")


def gone(path: Path) -> None:
    path.unlink()


def forbidden(path: Path) -> None:
    path.unlink()
    path.mkdir()


def without_folder(path: Path) -> None:
    path.unlink()
    path.parent.rename(path.parent.with_name("moved"))


def taken(path: Path, **given: Any) -> Any:
    done = subprocess.run([path], capture_output=True, cwd=path.parent, **given)
    return done.returncode, done.stdout, done.stderr


def read_at_once(path: Path) -> Any:
    return failure(lambda: subprocess.check_output([str(path)], stderr=subprocess.STDOUT)).output  # type: ignore[union-attr]


WAYS: dict[str, tuple[Callable[[Path], Any], object]] = {
    "bytes": (taken, (3, b"one\n", b"two\n")),
    "text": (lambda path: taken(path, text=True), (3, "one\n", "two\n")),
    "a failed check": (read_at_once, b"one\ntwo\n"),
    "the exit code alone": (lambda path: subprocess.call([path]), 3),
    "a shell's line": (lambda path: subprocess.getstatusoutput(f"{path} 2>/dev/null"), (3, "one")),
    "os.system": (lambda path: os.system(str(path)), 3 << 8),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", [changed, gone, forbidden, without_folder])
def test_the_rank_gets_what_the_recorded_rank_got(
    program: Path, monkeypatch: pytest.MonkeyPatch, way: str, change: Callable[[Path], None]
) -> None:
    use, given = WAYS[way]
    notes = recorded(lambda: use(program))
    change(program)
    _, said = replaying(monkeypatch, notes)
    assert use(program) == given
    (text,) = said
    assert "answered from the recording: " in text and str(program) in text
    assert use(program) != given if change is changed else failure(lambda: use(program)) or use(program) != given


def test_what_is_as_recorded_is_not_said(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = recorded(lambda: taken(program))
    _, said = replaying(monkeypatch, notes)
    assert taken(program) == (3, b"one\n", b"two\n") and not said


def test_it_is_said_once_why_the_recording_decided(
    program: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    line = ["sh", "-c", ". ./program"]

    def start() -> None:
        for _ in range(2):
            subprocess.run(line, cwd=program.parent, capture_output=True)

    notes = recorded(start)
    changed(program)
    _, said = replaying(monkeypatch, notes)
    start()
    assert said == ["sh -c '. ./program': answered from the recording: here it ends with exit code 128"]
    assert capfd.readouterr().err == f"prismdbg: {said[0]}\n"


def test_the_program_runs_for_what_it_does(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = recorded(lambda: taken(program))
    write(program, "touch done; exit 1")
    replaying(monkeypatch, notes)
    assert taken(program)[0] == 3 and program.with_name("done").exists()


def test_one_that_could_not_be_started_is_not(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = program.rename(program.with_name("moved"))
    notes = recorded(lambda: taken(program))
    moved.rename(program)
    write(program, "touch done")
    _, said = replaying(monkeypatch, notes)
    error = failure(lambda: taken(program))
    assert isinstance(error, FileNotFoundError) and error.filename == str(program)
    assert not program.with_name("done").exists() and said[0].endswith("the recorded rank could not start it")


def test_one_that_is_missing_here_as_there_fails_as_there(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone(program)
    notes = recorded(lambda: taken(program))
    _, said = replaying(monkeypatch, notes)
    error = failure(lambda: taken(program))
    assert isinstance(error, FileNotFoundError) and error.filename == str(program) and not said


def test_a_forked_worker_gets_nothing_of_the_record(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it starts stands in no record. The rank's own next start counts as its first."""
    notes = recorded(lambda: subprocess.call([program]))
    changed(program)
    replaying(monkeypatch, notes)
    worker = os.fork()
    if worker == 0:
        os._exit(subprocess.call([program]))
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 128
    assert subprocess.call([program]) == 3


@pytest.mark.parametrize("line", ["kill -TERM $$", "kill -KILL $$"])
@pytest.mark.parametrize("change", [changed, gone])
def test_a_signal_ends_it_again(
    program: Path, monkeypatch: pytest.MonkeyPatch, line: str, change: Callable[[Path], None]
) -> None:
    write(program, line)
    first = [subprocess.call([program]), os.system(f"exec {program}")]
    notes = recorded(lambda: (subprocess.call([program]), os.system(f"exec {program}")))
    change(program)
    replaying(monkeypatch, notes)
    assert [subprocess.call([program]), os.system(f"exec {program}")] == first and first[0] < 0


def test_one_that_never_ended_goes_on_until_the_rank_ends_it(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(program, "exec cat")
    started: list[Any] = []
    given: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    notes = recorded(lambda: started.append(subprocess.Popen([program], **given)))
    started[0].communicate()
    gone(program)
    replaying(monkeypatch, notes)
    with subprocess.Popen([program], **given) as stand_in:
        try:
            os.set_blocking(stand_in.stdout.fileno(), False)
            wait_for(lambda: stand_in.stdout.read() == b"", 20, "the end of what it prints")
            assert stand_in.args == [program] and stand_in.poll() is None
        finally:
            stand_in.terminate()
        assert stand_in.wait() == -signal.SIGTERM


def test_a_stand_in_ends_with_the_recorded_code_for_those_who_ask_the_kernel(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = recorded(lambda: subprocess.call([program]))
    gone(program)
    replaying(monkeypatch, notes)
    stand_in = subprocess.Popen([program])
    assert os.waitstatus_to_exitcode(os.waitpid(stand_in.pid, 0)[1]) == 3
    stand_in.wait()


def test_an_output_too_long_for_the_record_is_the_real_one(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(program, "head -c 65537 /dev/zero")
    notes = recorded(lambda: taken(program))
    changed(program)
    _, said = replaying(monkeypatch, notes)
    assert taken(program) == (0, b"other\n", b"")
    assert said[0].endswith("here it ends with exit code 128; what it printed is not in the recording")


def test_what_was_redacted_is_given_redacted(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = [
        replace(note, data=note.data | ({"out": "<redacted>\n"} if "out" in note.data else {}))
        for note in recorded(lambda: taken(program))
    ]
    _, said = replaying(monkeypatch, notes)
    assert taken(program) == (3, b"<redacted>\n", b"two\n") and said[0].endswith("here it prints something else")


def test_what_the_recorded_rank_did_not_start_is_real(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = recorded(lambda: taken(program))
    changed(program)
    _, said = replaying(monkeypatch, notes)
    assert subprocess.call([program, "x"], cwd=program.parent) == 128  # other arguments
    assert subprocess.call([program], cwd="/") == 128  # another folder
    assert subprocess.call([program], cwd=program.parent) == 3
    assert subprocess.call([program], cwd=program.parent) == 128  # once more
    assert len(said) == 1


@pytest.mark.parametrize("word", ["{}", "./program", "program"])
def test_an_edited_program_counts(program: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    line = ["sh", word.format(program)]
    notes = recorded(lambda: subprocess.call(line, cwd=program.parent))
    changed(program)
    _, said = replaying(monkeypatch, notes, [str(program)])
    assert subprocess.call(line, cwd=program.parent) == 128 and not said


def test_a_replay_from_a_snapshot_has_not_started_what_came_before_it(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of four steps starts it, and the one before them."""
    notes: list[Note] = []
    for step, code in enumerate((1, 2, 3, 4)):
        write(program, f"exit {code}")
        for note in recorded(lambda: subprocess.call([program]), f"{step}.1"):
            notes.append(replace(note, data=note.data | {"nth": step + 1}))
    changed(program)
    outcomes, _ = replaying(monkeypatch, notes)
    assert subprocess.call([program]) == 1
    outcomes.go_on_from(2)
    assert [subprocess.call([program]) for _ in range(3)] == [3, 4, 128]


def test_a_hostile_record_is_no_more_than_an_answer(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"arguments": [str(program)], "folder": str(program.parent), "nth": 1, "moment": None}
    notes = [Note(PROGRAM, 0, told | {"errno": 2**62}), Note(PROGRAM, 0, told | {"code": 2**62})]
    gone(program)
    replaying(monkeypatch, notes)
    assert subprocess.call([program], cwd=program.parent) == 2**62


def test_nothing_is_installed_without_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    before = subprocess.Popen.wait
    replaying(monkeypatch, [])
    assert subprocess.Popen.wait is before


def test_a_stand_in_ends_with_the_rank() -> None:
    """Which may be gone before it looks. This one is no child of process 1."""
    assert subprocess.run([sys.executable, "-c", STAND_IN, "", "1"], timeout=60).returncode == 0
