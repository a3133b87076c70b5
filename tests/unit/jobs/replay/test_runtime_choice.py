"""Where a rank runs if nobody says: the first place that works, and a plain process only for who accepts its writes."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from prismdbg.capsule.manifest import Origin
from prismdbg.errors import FacilityError, UsageError
from prismdbg.jobs.replay import runtimes
from prismdbg.runtime.docker_runtime import DockerRuntime
from prismdbg.runtime.local_runtime import LocalRuntime
from prismdbg.runtime.plain_runtime import PlainRuntime


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the runtimes that work here: the test fills it in."""
    found: set[str] = set()
    for name, kind in (("docker", DockerRuntime), ("local", LocalRuntime), ("plain", PlainRuntime)):
        monkeypatch.setattr(kind, "available", lambda _self, name=name: None if name in found else "not here")
    return found


@pytest.mark.parametrize(
    ("here", "origin", "allow_writes", "chosen"),
    [
        ({"docker", "local", "plain"}, Origin.START, False, DockerRuntime),
        ({"docker", "local", "plain"}, Origin.START, True, DockerRuntime),
        ({"local", "plain"}, Origin.IMAGE, False, LocalRuntime),
        ({"local", "plain"}, Origin.START, True, LocalRuntime),
        ({"plain"}, Origin.START, True, PlainRuntime),
    ],
)
def test_the_first_that_works(
    here: set[str], origin: Origin, allow_writes: bool, chosen: type, works: set[str]
) -> None:
    works |= here
    assert type(runtimes.choose("", origin, allow_writes)) is chosen


@pytest.mark.parametrize(
    ("origin", "allow_writes"), [(Origin.START, False), (Origin.IMAGE, False), (Origin.IMAGE, True)]
)
def test_a_plain_process_is_not_chosen_for_who_did_not_allow_it(
    origin: Origin, allow_writes: bool, works: set[str]
) -> None:
    works.add("plain")
    with pytest.raises(FacilityError, match="docker: not here; local: not here") as raised:
        runtimes.choose("", origin, allow_writes)
    assert ("--allow-writes" in str(raised.value.hint)) == (origin is Origin.START)


@pytest.mark.parametrize("origin", [Origin.START, Origin.IMAGE])
def test_a_rank_that_used_a_gpu_is_given_no_container(origin: Origin, works: set[str]) -> None:
    works |= {"docker", "local"}
    assert type(runtimes.choose("", origin, False, on_gpu=True)) is LocalRuntime
    assert type(runtimes.choose("docker", origin, False, on_gpu=True)) is DockerRuntime  # who asks for it gets it
    works.remove("local")
    with pytest.raises(FacilityError, match="docker: its containers have no GPU, which the rank used; local: not here"):
        runtimes.choose("", origin, False, on_gpu=True)


def test_the_one_that_is_asked_for_or_none(works: set[str]) -> None:
    works |= {"local"}
    assert type(runtimes.choose("local", Origin.START, False)) is LocalRuntime
    with pytest.raises(FacilityError, match="the runtime docker cannot be used: not here"):
        runtimes.choose("docker", Origin.START, False)
    with pytest.raises(UsageError, match="'podman' is not a runtime"):
        runtimes.choose("podman", Origin.START, False)


@pytest.mark.parametrize("name", ["", "local"])
def test_too_few_open_files_are_named_before_anything_is_tried(name: str, works: set[str]) -> None:
    works |= {"docker", "local"}
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, before[1]))
    try:
        with pytest.raises(FacilityError, match="the limit of open files is 16") as caught:
            runtimes.choose(name, Origin.START, allow_writes=False)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "ulimit -n" in caught.value.hint
    assert runtimes.choose(name, Origin.START, allow_writes=False)


def test_without_a_cache_folder_the_next_one_is_taken(
    works: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker keeps what it builds there; another place needs nothing of it."""
    works |= {"docker", "local"}
    (tmp_path / "file").touch()
    monkeypatch.setenv("PRISMDBG_CACHE", str(tmp_path / "file" / "cache"))
    assert type(runtimes.choose("", Origin.START, False)) is LocalRuntime
    works.remove("local")
    with pytest.raises(FacilityError, match=r"docker: .*file/cache cannot be created .*; local: not here"):
        runtimes.choose("", Origin.START, False)
    with pytest.raises(FacilityError, match=r"the runtime docker cannot be used: .*file/cache cannot be created"):
        runtimes.choose("docker", Origin.START, False)
