"""What is told while a container image is made, which takes minutes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from prismdbg.runtime.docker import image
from prismdbg.runtime.docker.engine import Engine
from prismdbg.runtime.docker.image import ensure_environment_image
from prismdbg.runtime.environment import Environment, InstalledFile, of_files


class Importing:
    """Docker's engine, without an image: it takes each layer that it is given."""

    def __init__(self) -> None:
        self.imported_bytes = 0
        self.is_there = False

    def has_image(self, _tag: str) -> bool:
        return self.is_there

    def remove_abandoned(self) -> None:
        """There is none."""

    def images_labelled(self, _label: str) -> list[str]:
        return []

    def import_image(self, _repository: str, _tag: str, layer: Iterable[bytes], _labels: object) -> None:
        self.imported_bytes = sum(len(chunk) for chunk in layer)


def installation(folder: Path, sizes_mib: Iterable[int]) -> Environment:
    packages = folder / "site-packages"
    packages.mkdir()
    files = []
    for number, size_mib in enumerate(sizes_mib):
        file = packages / f"library{number}.so"
        with file.open("wb") as out:
            out.truncate(size_mib << 20)
        files.append(InstalledFile.at(str(file)) or pytest.fail("not there"))
    return of_files(files)


def test_a_container_image_that_takes_long_is_told_with_what_is_left(tmp_path: Path) -> None:
    said: list[str] = []
    ensure_environment_image(cast("Engine", Importing()), installation(tmp_path, [30] * 4), said.append)
    assert said[0] == "docker: building a container image from 4 files, 120 MiB, once for this environment"
    assert "docker: container image: 60 of 120 MiB" in said
    assert said[-2:] == [
        "docker: container image: Docker has all files and stores them",
        "docker: the container image is complete",
    ]


def test_a_small_one_is_told_once(tmp_path: Path) -> None:
    said: list[str] = []
    ensure_environment_image(cast("Engine", Importing()), installation(tmp_path, [1]), said.append)
    assert len(said) == 2


def test_who_does_not_want_to_wait_ends_it(tmp_path: Path) -> None:
    """The screen's escape: what it is told raises."""

    def cancel(text: str) -> None:
        if " of " in text:
            raise KeyboardInterrupt

    engine = Importing()
    with pytest.raises(KeyboardInterrupt):
        ensure_environment_image(cast("Engine", engine), installation(tmp_path, [30] * 4), cancel)
    assert engine.imported_bytes == 0


@contextmanager
def folder_open(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("makes", [True, False], ids=["it made the image", "it made none"])
def test_of_two_commands_one_builds_the_image_and_the_other_waits(
    makes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "_TOLD_S", 0.0)
    engine, cache, said = Importing(), tmp_path / "cache", list[str]()
    cache.mkdir()
    with folder_open(cache) as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def hear(text: str) -> None:
            said.append(text)
            engine.is_there = makes
            fcntl.flock(other, fcntl.LOCK_UN)

        environment = installation(tmp_path, [1])
        tag = ensure_environment_image(cast("Engine", engine), environment, hear, cache=cache)
    assert tag == image.environment_tag(environment)
    assert said[0] == "docker: another command builds a container image: waiting (0 s)"
    assert bool(engine.imported_bytes) != makes


def test_without_a_folder_to_write_to_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    engine = Importing()
    ensure_environment_image(cast("Engine", engine), installation(tmp_path, [1]), cache=tmp_path / "cache")
    assert engine.imported_bytes
