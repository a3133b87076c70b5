"""Programs that are run lie in the cache: nobody but its owner may put others in their place."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismdbg.checkpoint.cache import cache_folder, made_cache_folder
from prismdbg.checkpoint.engine import Use
from prismdbg.errors import FacilityError
from prismdbg.jobs.record import setup
from prismdbg.jobs.storage.remote import fetched_cache

OTHERS_WRITE = 0o022


@pytest.fixture
def open_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PRISMDBG_CACHE", str(tmp_path / "home" / "cache"))
    before = os.umask(0)
    yield
    assert os.umask(before) == 0, "the caller's own umask was changed"


@pytest.mark.usefixtures("open_umask")
def test_others_cannot_write_to_it_whatever_the_umask() -> None:
    assert made_cache_folder() == cache_folder() and made_cache_folder().stat().st_mode & 0o777 == 0o755


@pytest.mark.usefixtures("open_umask")
def test_nor_to_what_setup_builds_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """`setup` starts a program that builds, and builds itself."""

    def build(use: Use) -> None:
        (cache_folder() / str(use)).mkdir()
        raise FacilityError("enough was built")

    python = cache_folder().parent / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nmkdir "$4/native" && touch "$4/native/it.so" && echo "$4/native/it.so"\n')
    python.chmod(0o755)
    monkeypatch.setattr(setup.choice, "find", build)
    native, _ = setup.set_up(str(python), lambda _: None)
    assert not native.lacking
    made = [cache_folder(), *cache_folder().rglob("*")]
    assert len(made) == 4 and not [path for path in made if path.stat().st_mode & OTHERS_WRITE]


@pytest.mark.usefixtures("open_umask")
def test_whoever_comes_first_makes_it_so() -> None:
    assert not fetched_cache.is_fetched(Path(sys.executable)) and not cache_folder().exists()
    assert not list(fetched_cache.cache_folder().iterdir())
    assert cache_folder().stat().st_mode & OTHERS_WRITE == 0
    assert (cache_folder() / "fetched").stat().st_mode & 0o777 == 0o700
