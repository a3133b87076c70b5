"""Parts of a file in a capsule: where it has data, and a copy with some of it masked."""

from __future__ import annotations

import errno
import os
import tracemalloc
from pathlib import Path

import pytest
from disk_space import files_of_any_size

from prismdbg.capsule import transfer
from prismdbg.errors import CapsuleError

MIB = 1 << 20


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.seek(8 * MIB)
        file.write(b"secret")
        file.truncate(64 * MIB)
    return path


def parts_of(path: Path) -> list[tuple[int, int]]:
    with path.open("rb") as file:
        return list(transfer.data_parts(file.fileno()))


def test_where_a_file_has_data(sparse: Path, tmp_path: Path) -> None:
    ((start, stop),) = parts_of(sparse)
    assert 0 < start <= 8 * MIB and 8 * MIB + 6 <= stop < 9 * MIB
    (tmp_path / "whole").write_bytes(b"x" * 5000)
    (tmp_path / "empty").touch()
    assert parts_of(tmp_path / "whole") == [(0, 5000)] and parts_of(tmp_path / "empty") == []
    (tmp_path / "hole").touch()
    os.truncate(tmp_path / "hole", MIB)
    assert parts_of(tmp_path / "hole") == []


def test_a_file_system_that_knows_no_holes(sparse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "lseek", refused)
    assert parts_of(sparse) == [(0, 64 * MIB)]


def test_a_masked_copy_takes_little_memory_and_little_disk(sparse: Path, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        entry = transfer.bring_masked(sparse, tmp_path / "copy", [(8 * MIB, 8 * MIB + 6)], b"*")
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()
    data = (tmp_path / "copy").read_bytes()
    assert data.count(b"*") == 6 and data[8 * MIB : 8 * MIB + 6] == b"******" and len(data) == entry.size_bytes
    assert (tmp_path / "copy").stat().st_blocks * 512 < 4 * MIB
    assert entry == transfer.hash_file(tmp_path / "copy") and b"secret" in sparse.read_bytes()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "hole"])
def test_parts_of_what_is_no_plain_file_are_refused(sparse: Path, tmp_path: Path, kind: str) -> None:
    """As a segment of a run's log may be: `inspect RUN` makes a capsule of it."""
    source = tmp_path / "source"
    if kind == "link":
        source.symlink_to(sparse)
    elif kind == "pipe":
        os.mkfifo(source)
    elif kind == "folder":
        source.mkdir()
    else:
        source.touch()
        with files_of_any_size():
            os.truncate(source, 1 << 40)
    with pytest.raises(CapsuleError, match="is nearly all holes" if kind == "hole" else "is not a regular file"):
        transfer.bring_parts(source, tmp_path / "copy", [(0, 1)])
    assert not (tmp_path / "copy").exists()
