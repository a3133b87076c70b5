"""What lies on this machine now and is younger than the moment at which a replay begins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prismdbg.jobs.birth_time import birth_ns
from prismdbg.jobs.replay.later_files import MOST_UNDATED, LaterFiles, later_files
from prismdbg.session.causes import ALL_HIDDEN

BEGAN_NS = 1_000_000_000_000


def put(path: Path, later: bool) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    at_ns = BEGAN_NS + (1 if later else 0)
    os.utime(path, ns=(at_ns, at_ns))
    return path


def found(home: Path, *folders: Path, known: tuple[Path, ...] = (), left_out: tuple[Path, ...] = ()) -> list[str]:
    later = later_files(map(str, folders or (home,)), BEGAN_NS, known=[*map(str, known)], left_out=map(str, left_out))
    assert later.unhidden.unsearched == ()
    return [os.path.relpath(path, home) for path in later.paths]


def test_what_was_there_stays(tmp_path: Path) -> None:
    put(tmp_path / "data.bin", later=False)
    put(tmp_path / "new.pt", later=True)
    assert found(tmp_path) == ["new.pt"]


def test_what_is_laid_as_it_was_stays(tmp_path: Path) -> None:
    read = put(tmp_path / "settings.txt", later=True)
    put(tmp_path / "new.pt", later=True)
    assert found(tmp_path, known=(read,)) == ["new.pt"]


def test_a_folder_of_later_files_goes_as_one(tmp_path: Path) -> None:
    put(tmp_path / "steps" / "1" / "state.pt", later=True)
    put(tmp_path / "steps" / "2" / "state.pt", later=True)
    assert found(tmp_path) == ["steps"]


def test_a_folder_that_was_there_stays_and_is_empty(tmp_path: Path) -> None:
    put(tmp_path / "steps" / "1" / "state.pt", later=True)
    assert found(tmp_path, known=(tmp_path / "steps",)) == ["steps/1"]
    assert found(tmp_path, tmp_path / "steps") == ["steps/1"]
    (tmp_path / "empty").mkdir()
    assert "empty" not in found(tmp_path)


def test_a_folder_with_something_older_keeps_that(tmp_path: Path) -> None:
    put(tmp_path / "steps" / "old", later=False)
    put(tmp_path / "steps" / "new", later=True)
    assert found(tmp_path) == ["steps/new"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere" / "new", later=True)
    home = tmp_path / "home"
    put(home / "old", later=False)
    (home / "latest").symlink_to(tmp_path / "elsewhere")
    assert found(home) == ["latest"]  # made just now


def test_what_is_installed_is_not_looked_into(tmp_path: Path) -> None:
    put(tmp_path / ".venv" / "lib" / "new.py", later=True)
    put(tmp_path / ".git" / "index", later=True)
    assert found(tmp_path, left_out=(tmp_path / ".venv",)) == []


def test_no_virtual_environment_is_looked_into(tmp_path: Path) -> None:
    """A project may hold several, each with more entries than are looked at."""
    put(tmp_path / "old-venv" / "pyvenv.cfg", later=True)
    put(tmp_path / "old-venv" / "lib" / "new.py", later=True)
    put(tmp_path / "new.pt", later=True)
    assert found(tmp_path) == ["new.pt"]


def test_a_copy_that_keeps_its_time_is_shown_and_named(tmp_path: Path) -> None:
    """It may be what the rank needs, with another mode or name: only a difference makes it a suspect."""
    copy = put(tmp_path / "config.yaml", later=False)
    later = later_files([str(tmp_path)], BEGAN_NS, known=())
    assert (later.paths, later.unhidden.undated) == ((), (str(copy),))
    assert later_files([str(tmp_path)], BEGAN_NS, known=(str(copy),)).unhidden == ALL_HIDDEN
    assert later_files([str(tmp_path)], copy.stat().st_ctime_ns, known=()).unhidden == ALL_HIDDEN


def test_a_file_that_was_given_another_name_or_mode_since_is_no_copy(tmp_path: Path) -> None:
    """A recording gives the files that the program reads a second name."""
    file = put(tmp_path / "train.py", later=False)
    since_ns = birth_ns(str(file))
    os.link(file, tmp_path / "second")
    file.chmod(0o600)
    assert file.stat().st_ctime_ns > since_ns > 0
    os.utime(file, ns=(since_ns, since_ns))
    assert later_files([str(tmp_path)], since_ns, known=()) == LaterFiles((), ALL_HIDDEN)
    assert birth_ns(str(tmp_path / "gone")) == 0


def test_what_other_programs_copy_in_a_folder_of_all_users_is_no_suspect(tmp_path: Path) -> None:
    """Python's `tempfile` tries out whether it can write in /tmp, and so names it."""
    tmp_path.chmod(0o1777)
    theirs = put(tmp_path / "rsync" / "data" / "config.yaml", later=False)
    beside = put(tmp_path / "config.yaml", later=False)
    assert later_files([str(tmp_path)], BEGAN_NS, known=()).unhidden.undated == (str(beside),)
    named = later_files([str(tmp_path), str(tmp_path / "rsync")], BEGAN_NS, known=())
    assert named.unhidden.undated == (str(beside), str(theirs))
    put(tmp_path / "rsync" / "new", later=True)
    assert found(tmp_path) == ["rsync/new"]


def test_no_more_undated_files_are_kept_than_anybody_reads(tmp_path: Path) -> None:
    for number in range(MOST_UNDATED + 3):
        put(tmp_path / str(number), later=False)
    assert len(later_files([str(tmp_path)], BEGAN_NS, known=()).unhidden.undated) == MOST_UNDATED


def test_a_large_folder_is_looked_through_in_part(tmp_path: Path) -> None:
    for number in range(9):
        put(tmp_path / str(number), later=True)
    later = later_files([str(tmp_path)], BEGAN_NS, known=(), most=3)
    assert (len(later.paths), later.unhidden.unsearched) == (3, (str(tmp_path),))
    whole = later_files([str(tmp_path)], BEGAN_NS, known=(), most=9)
    assert (len(whole.paths), whole.unhidden.unsearched) == (9, ())


def test_many_folders_that_were_not_searched_are_said_as_one(tmp_path: Path) -> None:
    deep = tmp_path / "others" / "layers"
    for number in range(9):
        put(deep / str(number) / "file", later=True)
    later = later_files([str(tmp_path)], BEGAN_NS, known=(), most=12)
    assert later.unhidden.unsearched == (str(deep),)
    assert later_files([str(tmp_path), str(deep)], BEGAN_NS, known=(), most=12).unhidden.unsearched == (str(deep),)


def test_a_folder_that_was_not_read_to_its_end_is_not_hidden_whole(tmp_path: Path) -> None:
    """What was not looked at may be older."""
    inner = tmp_path / "inner"
    for number in range(4):
        put(inner / str(number), later=True)
    later = later_files([str(tmp_path)], BEGAN_NS, known=(), most=3)
    assert (len(later.paths), later.unhidden.unsearched) == (2, (str(inner),))
    assert str(inner) not in later.paths


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    assert found(tmp_path, tmp_path / "gone") == []


def test_the_kernels_files_are_nobodys(tmp_path: Path) -> None:
    put(tmp_path / "new", later=True)
    (tmp_path / "settings").symlink_to("/sys/kernel")
    elsewhere = [f"/proc/self/root{tmp_path}", "/sys/kernel/mm", f"{tmp_path}/settings/mm"]
    assert later_files(elsewhere, BEGAN_NS, known=[]).paths == ()
    assert not [path for path in later_files(["/"], BEGAN_NS, known=[]).paths if path.startswith(("/proc", "/sys"))]


def test_a_folder_that_may_not_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `/proc/1/root`, for example, the kernel says "permission denied" to root, too."""

    def denied(*_: object, **__: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", denied)
        assert later_files([str(tmp_path)], BEGAN_NS, known=()).paths == ()


def test_recordings_are_not_looked_into_and_hidden_where_they_are_younger(tmp_path: Path) -> None:
    for name in ("run", "older"):
        put(tmp_path / name / "run.json", later=True)
        put(tmp_path / name / "ranks" / "0" / "events", later=True)
    put(tmp_path / "older" / "ranks" / "1" / "events", later=False)
    put(tmp_path / "data.bin", later=False)
    assert sorted(found(tmp_path)) == ["older", "run"], "made after the start, whatever time their files have"
    after_both = max(birth_ns(str(tmp_path / name)) for name in ("run", "older"))
    assert later_files([str(tmp_path)], after_both, known=[]).paths == ()


def test_the_recorders_copy_is_not_looked_into(tmp_path: Path) -> None:
    put(tmp_path / "inject" / "sitecustomize.py", later=True)
    put(tmp_path / "inject" / "prismdbg" / "rank" / "boot.py", later=True)
    put(tmp_path / "new.pt", later=True)
    put(tmp_path / "data.bin", later=False)
    assert found(tmp_path) == ["new.pt"]


def test_the_programs_own_folders_are_searched_before_those_of_every_user(tmp_path: Path) -> None:
    """A shared folder may hold so much that nothing is left for the others."""
    shared, own = tmp_path / "a-shared", tmp_path / "own"
    for number in range(20):
        put(shared / "of another program" / str(number), later=True)
    shared.chmod(0o1777)
    new = put(own / "new.pt", later=True)
    put(own / "old.pt", later=False)
    assert str(new) in later_files([str(shared), str(own)], BEGAN_NS, known=[], most=10).paths


def test_what_the_kernel_mounts_below_a_folder_is_not_looked_into(tmp_path: Path) -> None:
    """A root of another container, for example: its /proc has a folder for each process."""
    put(tmp_path / "root" / "proc" / "24699" / "attr", later=True)
    put(tmp_path / "root" / "new.pt", later=True)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"24 1 0:22 / {tmp_path}/root/proc rw - proc proc rw\n")
    os.utime(mounts, ns=(BEGAN_NS, BEGAN_NS))
    later = later_files([str(tmp_path)], BEGAN_NS, known=[], mounts=mounts)
    assert later.paths == (f"{tmp_path}/root/new.pt",)
    assert later_files([str(tmp_path)], BEGAN_NS, known=[]).paths == (f"{tmp_path}/root",)
