"""A part of `make kills`: whoever is killed at a random moment loses nothing that was complete and leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Set
from contextlib import nullcontext
from pathlib import Path

import kills
import pytest
from tiny_log import TinyLog

from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import engine
from prismdbg.runtime.docker.image import ensure_environment_image
from prismdbg.runtime.environment import InstalledFile, of_files

pytestmark = [pytest.mark.job, pytest.mark.criu]

SEED = 20
SOME = frozenset({"capture", "replay", "supervisor", "everything"})


@pytest.fixture
def own_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")))
    with kills.own_engine(tmp_path / "cache") as daemon:
        yield daemon


@pytest.mark.parametrize("some", [SOME, kills.KILLS.keys() - SOME], ids=["some", "others"])
def test_killed_at_random_moments(some: Set[str], tmp_path: Path) -> None:
    with kills.world_of(tmp_path, SEED) as world:
        for name in filter(some.__contains__, kills.KILLS):
            print(f"killing: {name}")
            kills.KILLS[name](world)


@pytest.mark.docker
def test_killed_in_a_container_at_random_moments(tmp_path: Path, own_engine: Daemon) -> None:
    home = tmp_path / "home"  # beside the engine's own data: what names it is left over
    home.mkdir()
    with kills.world_of(home, SEED, in_docker=True) as world:
        for name, kill in kills.DOCKER_KILLS.items():
            print(f"killing: {name}")
            kill(world)


def test_a_process_that_is_left_is_seen() -> None:
    word = f"left-by-{os.getpid()}"
    with subprocess.Popen([sys.executable, "-c", "input()", word], stdin=subprocess.PIPE) as process:
        assert [found.pid for found in kills._living(word)] == [process.pid]
        process.kill()
    assert not kills._living(word)


def test_a_collective_that_is_lost_is_seen(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "run" / "ranks" / "0")
    log.complete(log.issue(0, 1))
    log.issue(0, 2)
    for done in (1, 2):
        (tmp_path / "progress.0").write_bytes(done.to_bytes(8, "little"))
        with nullcontext() if done == 1 else pytest.raises(AssertionError, match="rank 0 did 2 steps, its log holds 1"):
            kills._check_logs(RunFolder(tmp_path / "run"), tmp_path)


@pytest.mark.docker
def test_a_container_that_is_left_is_seen(tmp_path: Path, own_engine: Daemon) -> None:
    file = tmp_path / "site-packages" / "x.so"
    file.parent.mkdir()
    file.write_text("content")
    some = of_files(filter(None, [InstalledFile.at(str(file))]))
    with engine(own_engine) as docker:
        tag = ensure_environment_image(docker, some)
        assert not kills._containers()
        container = docker.create(tag, ["none"], network_mode="none")
        assert kills._containers() == kills._containers("created") == [container]
        assert not kills._containers("running")
