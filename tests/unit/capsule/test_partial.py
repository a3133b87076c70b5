"""What a killed writer left half made is removed by the next writer, and by nobody while it is being written."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismdbg.capsule import partial
from prismdbg.capsule.partial import (
    is_abandoned,
    partial_file,
    partial_folder,
    publish,
    publish_copy,
    publish_new,
    removed_name,
)
from prismdbg.errors import FacilityError, UsageError
from prismdbg.jobs.storage.inventory import ItemKind, find, remove

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


@pytest.mark.parametrize("writer", ["file", "folder"])
def test_the_next_writer_removes_the_file_that_a_killed_one_left(tmp_path: Path, writer: str) -> None:
    dies = DIES.replace("partial_folder", "partial_file").replace('(folder / "half").write_text("made")', "pass")
    assert subprocess.run([sys.executable, "-c", dies, tmp_path / "first"], check=False).returncode == -9
    assert len(partials(tmp_path)) == 1
    theirs = tmp_path / f".x.partial-{partial._host()}.abcdef"  # no name of ours
    theirs.touch()
    with (
        partial_file(tmp_path / "being written") as written,
        partial_file(tmp_path / "a") if writer == "file" else partial_folder(tmp_path / "a"),
    ):
        assert written.name in partials(tmp_path) and len(partials(tmp_path)) == 3
    assert partials(tmp_path) == [theirs]


def test_a_file_that_was_taken_for_abandoned_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is locked it looks so."""
    real, removed = partial.lock, list[Path]()

    def late(descriptor: int) -> None:
        if not removed:
            removed.extend(partials(tmp_path))
            removed[0].unlink()
        real(descriptor)

    monkeypatch.setattr(partial, "lock", late)
    with partial_file(tmp_path / "name") as made:
        made.publish(tmp_path / "name")
    assert removed and (tmp_path / "name").exists() and not partials(tmp_path)


def test_a_copy_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """shutil collects what fails in one error without a number."""
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "file").write_text("x")

    def full(source: str, target: str, **_: object) -> None:
        Path(target).write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device", target)

    monkeypatch.setattr(shutil, "copy2", full)
    monkeypatch.setattr(shutil.copytree, "__defaults__", (False, None, full, False, False))
    with pytest.raises(FacilityError, match=r"kept cannot be written: .*No space left on device"):
        publish_copy(tmp_path / "trace", tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


def test_nobody_removes_what_is_being_written(tmp_path: Path) -> None:
    with partial_folder(tmp_path / "first") as first, partial_folder(tmp_path / "second") as second:
        assert partials(tmp_path) == sorted([first, second])


def test_of_two_writers_of_a_name_the_first_has_it(tmp_path: Path) -> None:
    with partial_folder(tmp_path / "name") as first, partial_folder(tmp_path / "name") as second:
        (first / "whose").write_text("first")
        (second / "whose").write_text("second")
        assert publish(first, tmp_path / "name") and not publish(second, tmp_path / "name")
        with pytest.raises(UsageError, match="name already exists"):
            publish_new(second, tmp_path / "name")
    assert [path.read_text() for path in tmp_path.glob("*/whose")] == ["first"] and not partials(tmp_path)


def test_a_link_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / f".x.partial-{partial._host()}.abcdefgh").symlink_to(tmp_path / "theirs")
    with partial_folder(tmp_path / "first"):
        assert (tmp_path / "theirs").is_dir()


def test_what_another_host_may_still_write_is_left_alone_for_a_day(tmp_path: Path) -> None:
    """Its lock may not be seen here, as on a file server without locks."""
    theirs = tmp_path / ".first.partial-00000000.abcdefgh"
    theirs.mkdir()
    with partial_folder(tmp_path / "second"):
        assert not is_abandoned(theirs)
    assert theirs.is_dir()
    old = theirs.stat().st_mtime - 25 * 3600
    os.utime(theirs, (old, old))
    with partial_folder(tmp_path / "third"):
        assert not theirs.exists()


def test_a_file_system_without_locks_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(_descriptor: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(partial, "lock", no_locks)
    with partial_folder(tmp_path / "first") as first, partial_folder(tmp_path / "second"):
        assert first.is_dir(), "who cannot see whether it is locked removes nothing"
        first.rename(tmp_path / "first")
    assert (tmp_path / "first").is_dir() and partials(tmp_path) == []


def test_without_locks_a_partial_counts_as_written_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the leftover of one capture would keep a log from being shortened for ever."""

    def no_locks(_descriptor: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(partial, "lock", no_locks)
    with partial_folder(tmp_path / "first") as first:
        assert not is_abandoned(first)
        old = first.stat().st_mtime - 25 * 3600
        os.utime(first, (old, old))
        assert is_abandoned(first)
        with partial_folder(tmp_path / "second"):
            assert first.is_dir(), "it may be a long one: nobody removes it unasked"


@pytest.fixture
def sigterm_exits() -> Iterator[None]:
    """As for a command of prismdbg."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm_exits")
def test_nothing_is_left_where_a_signal_comes_as_the_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkdtemp

    def made_and_told_to_end(**where: object) -> str:
        folder = make(**where)  # type: ignore[call-overload]
        signal.raise_signal(signal.SIGTERM)
        return str(folder)

    monkeypatch.setattr(tempfile, "mkdtemp", made_and_told_to_end)
    with pytest.raises(SystemExit), partial_folder(tmp_path / "first"):
        pytest.fail("it was told to end before")
    assert partials(tmp_path) == []
    assert callable(signal.getsignal(signal.SIGTERM)), "the handler is the one that was there"
    monkeypatch.setattr(tempfile, "mkdtemp", make)
    with pytest.raises(SystemExit), partial_folder(tmp_path / "second"):
        signal.raise_signal(signal.SIGTERM)
    assert partials(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [".data.partial-1", ".x.partial-0123456.abcdefgh", ".x.partial-01234567.abc", ".x.partial-01234567.abcdefgh.bak",
     ".x.partial-removed-", "x.partial-01234567.abcdefgh", ".partial-01234567.abcdefgh"],
)  # fmt: skip
def test_a_folder_that_is_not_ours_is_left_alone(tmp_path: Path, name: str) -> None:
    """Other programs call their unfinished files so, too."""
    (tmp_path / name).mkdir()
    with partial_folder(tmp_path / "first"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [name]


def made_by_an_older_version(folder: Path, days: float) -> Path:
    path = Path(tempfile.mkdtemp(prefix=".first.partial-", dir=folder))
    old = path.stat().st_mtime - days * 24 * 3600
    os.utime(path, (old, old))
    return path


@pytest.mark.parametrize("days", [0, 2])
def test_what_an_older_version_left_goes_after_a_day(tmp_path: Path, days: int) -> None:
    """Its name has no host."""
    left = made_by_an_older_version(tmp_path, days)
    assert [item.kind for item in find(tmp_path)] == [ItemKind.PARTIAL] * bool(days)
    if days:
        assert remove(left).kind is ItemKind.PARTIAL
        left = made_by_an_older_version(tmp_path, days)
    with partial_folder(tmp_path / "second"):
        assert left.exists() == (not days)


@pytest.mark.parametrize("lies_there", ["file", "link", "readable by others", "of another user", "locked"])
def test_what_may_not_be_an_older_versions_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lies_there: str
) -> None:
    left = made_by_an_older_version(tmp_path, 2)
    old = left.stat().st_mtime
    descriptor = os.open(left, os.O_RDONLY)
    match lies_there:
        case "file":
            left.rmdir()
            left.touch()
        case "link":
            left.symlink_to(left.rename(tmp_path / "theirs"))
        case "readable by others":
            left.chmod(0o755)
        case "of another user":
            monkeypatch.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
        case _:
            partial.lock(descriptor)
    os.utime(left, (old, old), follow_symlinks=False)
    with partial_folder(tmp_path / "second"):
        assert os.path.lexists(left)
    assert not find(tmp_path)
    os.close(descriptor)


def test_what_was_left_of_a_removal_goes(tmp_path: Path) -> None:
    removed_name(tmp_path / "capsule").mkdir()
    with partial_folder(tmp_path / "first"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In TMPDIR everybody's lie; root could remove them."""
    other = tmp_path / f".theirs.partial-{partial._host()}.abcdefgh"
    other.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: other.stat().st_uid + 1)
    with partial_folder(tmp_path / "first"):
        pass
    assert partials(tmp_path) == [other]


def test_a_folder_that_may_be_written_but_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> Iterator[Path]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    with partial_folder(tmp_path / "first") as folder:
        assert folder.is_dir()
