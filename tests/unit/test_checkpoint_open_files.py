"""Open files kept as they were at the dump."""

from __future__ import annotations

from pathlib import Path

from prismdbg.checkpoint.images import OpenFile, ProcessImage, Standard
from prismdbg.checkpoint.open_files import keep_written


def open_file(path: Path, size_bytes: int, *, is_written: bool = True) -> OpenFile:
    return OpenFile(path=str(path), size_bytes=size_bytes, mode=0o640, is_mapped=False, is_written=is_written)


def image(*files: OpenFile, standards: tuple[Standard, ...] = ()) -> ProcessImage:
    return ProcessImage(
        root_pid=7,
        pids=(7,),
        leads_session=True,
        cwd="/",
        uid=0,
        gid=0,
        files=files,
        addresses=(),
        unix_sockets=(),
        standards=standards,
    )


def test_what_was_written_since_is_cut_off(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text("before the dump, and after it")
    (kept,) = keep_written(image(open_file(journal, 15)), tmp_path / "kept", limit_bytes=1000)
    assert kept.copy is not None and kept.copy.read_text() == "before the dump"
    assert (kept.path, kept.size_bytes, kept.mode) == (str(journal), 15, 0o640)
    assert kept.copy.stat().st_mode & 0o777 == 0o600


def test_of_large_missing_and_shorter_files_only_the_length_is_kept(tmp_path: Path) -> None:
    large, shorter = tmp_path / "large", tmp_path / "shorter"
    large.write_bytes(bytes(2000))
    shorter.write_bytes(bytes(5))
    files = (open_file(large, 2000), open_file(shorter, 10), open_file(tmp_path / "missing", 3))
    kept = keep_written(image(*files), tmp_path / "kept", limit_bytes=1000)
    assert [(file.size_bytes, file.copy) for file in kept] == [(2000, None), (10, None), (3, None)]
    assert not list((tmp_path / "kept").iterdir())


def test_files_that_are_read_and_standard_output_are_left_out(tmp_path: Path) -> None:
    printed, data = tmp_path / "printed", tmp_path / "data"
    for path in (printed, data):
        path.write_text("x")
    files = (open_file(printed, 1), open_file(data, 1, is_written=False))
    standards = (Standard(number=1, key=str(printed).lstrip("/")),)
    assert keep_written(image(*files, standards=standards), tmp_path / "kept", limit_bytes=10) == ()
