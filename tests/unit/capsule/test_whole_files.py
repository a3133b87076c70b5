"""Files that a command writes: whole or not at all, and never into a file that somebody else chose."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from prismdbg.capsule.new_file import new_file
from prismdbg.capsule.partial import is_abandoned, is_partial
from prismdbg.cli.options import output_file
from prismdbg.errors import FacilityError, UsageError

WRITERS = [new_file, output_file.whole]
Writer = Callable[[Path], AbstractContextManager[Path]]


@pytest.mark.parametrize("whole", WRITERS)
def test_it_appears_when_it_is_complete(tmp_path: Path, whole: Writer) -> None:
    target = tmp_path / "out.csv"
    mask = os.umask(0o027)
    try:
        with whole(target) as path:
            path.write_text("first, and longer")
            path.write_text("second")
            (partial,) = tmp_path.iterdir()
            assert is_partial(partial) and not is_abandoned(partial)
    finally:
        os.umask(mask)
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert target.read_text() == "second" and target.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("whole", WRITERS)
def test_nothing_is_left_of_a_failed_one(tmp_path: Path, whole: Writer) -> None:
    with pytest.raises(UsageError, match="cannot be written: Input/output error"), whole(tmp_path / "out.csv") as path:
        path.write_text("half")
        raise OSError(errno.EIO, "Input/output error")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("whole", WRITERS)
def test_a_full_disk_is_what_the_machine_lacks(tmp_path: Path, whole: Writer, code: int) -> None:
    full = pytest.raises(FacilityError, match=f"out.csv cannot be written: {os.strerror(code)}")
    with full as refused, whole(tmp_path / "out.csv") as path:
        path.write_text("half")
        raise OSError(code, os.strerror(code))
    assert list(tmp_path.iterdir()) == [] and "free some space" in refused.value.hint


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    """As /dev/stdout: a file in its place would be read by nobody."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with output_file.whole(tmp_path / "pipe") as path:
            path.write_text("told")
        assert os.read(reader, 100) == b"told" and (tmp_path / "pipe").is_fifo()
    finally:
        os.close(reader)


def test_an_open_file_is_written_to_also_where_it_is_one_on_a_disk(tmp_path: Path) -> None:
    """As of `-o /dev/stdout > FILE`: the link stays, which is the system's."""
    link, redirected = tmp_path / "stdout", tmp_path / "redirected"
    with redirected.open("wb") as file:
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        with output_file.whole(link) as place:
            place.write_text("all of it")
    assert link.is_symlink() and redirected.read_text() == "all of it"


@pytest.mark.parametrize("whole", WRITERS)
def test_below_a_ring_of_links_nothing_can_be_written(tmp_path: Path, whole: Writer) -> None:
    (tmp_path / "ring").symlink_to("ring")
    with pytest.raises(UsageError, match="Too many levels of symbolic links"), whole(tmp_path / "ring" / "x"):
        pass


@pytest.mark.parametrize("whole", WRITERS)
def test_a_link_laid_in_its_way_leads_nowhere(tmp_path: Path, whole: Writer) -> None:
    """In a folder of a group another user lays links: under names that he foresees, or under the one that he sees."""
    folder, own = tmp_path / "group", tmp_path / "own.txt"
    folder.mkdir()
    own.write_text("of the victim")
    for name in (f".out.csv.partial-export-{os.getpid()}", f".out.csv.{os.getpid()}.part"):
        (folder / name).symlink_to(own)
    laid = set(folder.iterdir())
    with pytest.raises(FacilityError, match="was replaced by another file"), whole(folder / "out.csv") as path:
        (partial,) = set(folder.iterdir()) - laid
        partial.unlink()
        partial.symlink_to(own)
        path.write_text("exported")
    assert own.read_text() == "of the victim" and set(folder.iterdir()) == laid


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    for there in (False, True):
        target = tmp_path / f"out-{there}"
        if there:
            target.mkdir()
        with output_file.whole_folder(target) as folder:
            (folder / "a").write_text("a")
        assert [path.name for path in target.iterdir()] == ["a"]
    with pytest.raises(UsageError, match="not an empty folder"), output_file.whole_folder(tmp_path / "out-True"):
        pass
    with pytest.raises(UsageError, match="cannot be written"), output_file.whole_folder(tmp_path / "none" / "out"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out-False", "out-True"]


def test_whether_it_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    output_file.require(tmp_path / "out")
    with pytest.raises(UsageError, match="cannot be written"):
        output_file.require(tmp_path / "none" / "out")
    assert list(tmp_path.iterdir()) == []
