"""Socket folders of jobs whose supervisor was killed go; those of jobs that live, or have just begun, stay."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismdbg.workflows.agent_sockets import remove_dead


@pytest.fixture
def base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pd") as folder:  # pytest's own paths are too long for a socket
        yield Path(folder)


def folder_with_socket(base: Path, name: str) -> tuple[Path, socket.socket]:
    folder = base / name
    folder.mkdir()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "0.sock"))
    listening.listen()
    return folder, listening


def make_old(folder: Path) -> None:
    os.utime(folder, (0, 0))


def test_only_what_is_dead_and_old_goes(base: Path) -> None:
    dead, ended = folder_with_socket(base, "dead")
    young, also_ended = folder_with_socket(base, "young")
    alive, listening = folder_with_socket(base, "alive")
    empty = base / "empty"
    empty.mkdir()
    ended.close()
    also_ended.close()
    for folder in (dead, alive, empty):
        make_old(folder)
    with listening:
        remove_dead(base)
    assert sorted(path.name for path in base.iterdir()) == ["alive", "young"]
    assert young.is_dir()
