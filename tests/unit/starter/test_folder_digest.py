"""What tells a saved image from one that was changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starter_parts import starter_parts


@pytest.fixture(scope="module")
def starter() -> Any:
    return starter_parts()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "core-1.img").write_bytes(b"whole")
    (tmp_path / "facts.json").write_text("{}")
    return tmp_path


def test_a_folder_that_is_as_it_was_has_one_digest(starter: Any, image: Path) -> None:
    before, again = starter.states_of(image), starter.states_of(image)
    assert starter.digest_of(before) == starter.digest_of(again)
    assert starter.differing(before, again) == []
    assert sorted(before) == ["facts.json", "images", "images/core-1.img"]


def _rewrite(path: Path) -> None:
    path.write_bytes(b"w" * path.stat().st_size)


def _lengthen(path: Path) -> None:
    os.truncate(path, path.stat().st_size + 1)


def _replace(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("change", [_rewrite, _lengthen, _replace])
def test_a_changed_file_is_named(starter: Any, image: Path, change: Callable[[Path], None]) -> None:
    before = starter.states_of(image)
    change(image / "images" / "core-1.img")
    now = starter.states_of(image)
    assert starter.digest_of(before) != starter.digest_of(now)
    assert [line.partition(":")[0] for line in starter.differing(before, now)] == ["images/core-1.img"]


def test_a_long_file_that_was_written_again_is_another(starter: Any, image: Path) -> None:
    pages = image / "images" / "pages-1.img"
    pages.touch()
    os.truncate(pages, starter.READ_BYTES + 1)
    before = starter.states_of(image)
    os.utime(pages, ns=(1, 1))
    assert [line.partition(":")[0] for line in starter.differing(before, starter.states_of(image))] == [
        "images/pages-1.img"
    ]


def test_what_came_and_what_is_gone_are_named(starter: Any, image: Path) -> None:
    before = starter.states_of(image)
    (image / "facts.json").rename(image / "facts2.json")
    found = starter.differing(before, starter.states_of(image))
    assert [line.split(",")[-1] == " now missing" for line in found] == [True, False]
    assert found[1].startswith("facts2.json: missing, now ")


def test_a_folder_that_cannot_be_listed_is_no_other_folder(starter: Any, image: Path) -> None:
    """A part that was left out unseen would be taken for a changed image."""
    with pytest.raises(OSError, match="gone"):
        starter.states_of(image / "gone")
