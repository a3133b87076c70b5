"""The file in which children tell what they open."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from prismdbg.rank.recording.inputs import child_notes
from prismdbg.rank.recording.inputs.child_notes import ChildNotes, Told


@pytest.fixture
def notes(tmp_path: Path) -> ChildNotes:
    made = ChildNotes(str(tmp_path))
    made.begin_early()
    return made


def own(folder: Path) -> Path:
    return folder / f"{os.getpid()}.opened"


def tells(notes: ChildNotes, *names: str) -> bool:
    """Of a forked child: whether it was passed on."""
    child = os.fork()
    if not child:
        code = 2
        try:
            found: list[Told] = [("file", name, 1) for name in names]
            code = int(notes.tell(found))
        finally:
            os._exit(code)  # in any case: it must not go on with the tests
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1)
    return code == 1


def told(notes: ChildNotes) -> list[str]:
    return [path for _, path, _ in notes.told()]


def test_a_rank_hears_each_once(notes: ChildNotes) -> None:
    assert told(notes) == []
    assert tells(notes, "a", "b\udc80\n") and told(notes) == ["a", "b\udc80\n"]
    assert tells(notes, "c") and told(notes) == ["c"] and told(notes) == []


def test_a_line_that_was_cut_costs_no_other(notes: ChildNotes, tmp_path: Path) -> None:
    tells(notes, "a")
    with own(tmp_path).open("a") as file:
        file.write('["file", "to\n')
    tells(notes, "b")
    assert told(notes) == ["a", "b"]


def test_what_an_ended_process_of_the_same_pid_left_is_not_heard(notes: ChildNotes, tmp_path: Path) -> None:
    tells(notes, "a")
    again = ChildNotes(str(tmp_path))
    again.begin_early()
    again.begin()
    assert told(again) == []


def test_a_long_file_is_begun_anew(notes: ChildNotes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_notes, "_RENEWED_BYTES", 10)
    assert tells(notes, "a") and told(notes) == ["a"]
    assert own(tmp_path).stat().st_size == 0 and list(tmp_path.iterdir()) == [own(tmp_path)]
    assert tells(notes, "b") and told(notes) == ["b"]


def test_what_nobody_reads_does_not_grow(notes: ChildNotes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_notes, "_MOST_BYTES", 10)
    assert tells(notes, "a") and not tells(notes, "b")
    assert told(notes) == ["a"]


def test_nobody_hears_after_the_end(notes: ChildNotes, tmp_path: Path) -> None:
    notes.end()
    assert not tells(notes, "a") and not list(tmp_path.iterdir())


def test_a_process_that_is_no_child_tells_nobody(notes: ChildNotes) -> None:
    assert multiprocessing.parent_process() is None
    assert not notes.tell([("file", "a", 1)])
