"""Folders of replays: removed at the end, and by the next one where a client was killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prismdbg.errors import FacilityError
from prismdbg.jobs.replay import session_folder as folders
from prismdbg.jobs.storage.own_folder import own_folder


@pytest.fixture(autouse=True)
def bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    sessions, images = tmp_path / "sessions", tmp_path / "images"
    monkeypatch.setattr(folders, "sessions_base", lambda: sessions)
    monkeypatch.setattr(folders, "images_base", lambda: images)
    return sessions, images


def test_they_are_there_and_then_gone() -> None:
    with folders.session_folder() as session, folders.checkpoint_folder() as images:
        (images / "1").mkdir()
        assert session.stat().st_mode & 0o777 == images.stat().st_mode & 0o777 == 0o700
    assert not session.exists() and not images.exists()


def test_what_a_killed_client_left_is_removed_and_what_lives_is_not(bases: tuple[Path, Path]) -> None:
    left = [base / "left" for base in bases]
    with folders.session_folder() as session, folders.checkpoint_folder() as images:
        for folder in left:
            folder.mkdir()
        with folders.session_folder():
            assert session.is_dir() and images.is_dir()
            assert not any(folder.exists() for folder in left)


def test_a_base_that_is_a_link_is_not_trusted(bases: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    bases[0].symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FacilityError, match="belongs to another user"), folders.session_folder():
        pass


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a folder to another user")
def test_another_user_who_has_the_name_is_not_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "sessions-0").mkdir()
    os.chown(tmp_path / "sessions-0", 65534, 65534)
    found = own_folder(tmp_path, "sessions-0", 0o711)
    assert found == own_folder(tmp_path, "sessions-0", 0o711) != tmp_path / "sessions-0"
    assert found.stat().st_mode & 0o777 == 0o711
    assert own_folder(tmp_path, "images-0", 0o711) == tmp_path / "images-0"
