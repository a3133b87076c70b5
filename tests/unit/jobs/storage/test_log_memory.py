"""Who reads long logs completely is told what memory that takes, before it is taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prismdbg.capsule.log import format as fmt
from prismdbg.errors import FacilityError
from prismdbg.jobs.storage import log_memory
from prismdbg.jobs.storage.log_memory import require_room

GIB = 1 << 30


def logs(path: Path, *sizes: int) -> list[Path]:
    """Of two ranks, with segments of these sizes, which are holes."""
    folders = [path / "0", path / "1"]
    for folder in folders:
        folder.mkdir()
        for number, size_bytes in enumerate(sizes):
            file = folder / fmt.event_segment(number)
            file.touch()
            os.truncate(file, size_bytes)
    return folders


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_memory, "room_bytes", lambda _pid: 2 * GIB)


@pytest.mark.usefixtures("free")
@pytest.mark.parametrize(
    ("sizes", "takes"), [([GIB // 2, GIB // 8, GIB], "1.9 GiB"), ([GIB // 8, GIB], ""), ([GIB], "")]
)
def test_it_is_said_if_it_is_much(tmp_path: Path, sizes: list[int], takes: str) -> None:
    said: list[str] = []
    require_room(tmp_path, logs(tmp_path, *sizes), said.append)
    text = f"reading the logs of {tmp_path} completely takes about {takes} of memory"
    assert said == ([text] if takes else [])


@pytest.mark.usefixtures("free")
def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(FacilityError, match=r"takes about 3\.0 GiB of memory, but only 2\.0 GiB are free") as raised:
        require_room(tmp_path, logs(tmp_path, GIB, GIB), said.append)
    assert raised.value.hint.startswith("leave out --whole") and said == []


def test_where_nobody_says_what_is_free_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_pid: int) -> int:
        raise OSError("no /proc")

    monkeypatch.setattr(log_memory, "room_bytes", unknown)
    said: list[str] = []
    require_room(tmp_path, logs(tmp_path, GIB, GIB), said.append)
    assert len(said) == 1
