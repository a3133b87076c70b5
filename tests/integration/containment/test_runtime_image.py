"""Images made of a rank's own files: what is in them, and that they are made once."""

from __future__ import annotations

import os
import signal
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from counting import ask, program_spec, short_folder
from docker import DockerClient
from waiting import wait_for

from prismdbg.checkpoint.cache import cache_folder
from prismdbg.errors import FacilityError
from prismdbg.runtime.docker import image
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import OWNER_LABEL, Engine, answers_at, engine
from prismdbg.runtime.docker_runtime import DockerRuntime
from prismdbg.runtime.environment import InstalledFile, of_files


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    one = Daemon(cache_folder())
    if reason := DockerRuntime(one).available():
        pytest.skip(reason)
    ran_before = one.running_pid() is not None
    yield one
    if not ran_before:
        one.stop()


@pytest.fixture
def docker(daemon: Daemon) -> Iterator[Engine]:
    with engine(daemon) as connected:
        yield connected


def made_here(docker: Engine) -> list[str]:
    """Containers of any command, in whatever state."""
    client = DockerClient(base_url=docker.url)
    try:
        found = client.containers.list(all=True, filters={"label": OWNER_LABEL}, ignore_removed=True)
        return [str(container.id) for container in found]
    finally:
        client.close()


def packages(folder: Path) -> Path:
    """A folder that counts as an installation."""
    made = folder / "site-packages"
    made.mkdir(exist_ok=True)
    return made


def test_an_image_is_made_once(docker: Engine, tmp_path: Path) -> None:
    file = packages(tmp_path) / "library.so"
    file.write_text("content")
    some = of_files([InstalledFile.at(str(file)) or pytest.fail("not there")])
    tag = image.environment_tag(some)
    try:
        assert image.ensure_environment_image(docker, some) == tag
        file.unlink()  # a second making would fail
        assert image.ensure_environment_image(docker, some) == tag
    finally:
        docker.remove_image(tag)
    assert not docker.has_image(tag)


def test_an_image_is_listed_and_goes_once_no_container_stands_on_it(docker: Engine, tmp_path: Path) -> None:
    file = packages(tmp_path) / "library.so"
    file.write_bytes(bytes(5000))
    some = of_files([InstalledFile.at(str(file)) or pytest.fail("not there")])
    tag = image.ensure_environment_image(docker, some)
    try:
        (listed,) = (one for one in image.stored_environments(docker) if one.tag == tag)
        assert listed.size_bytes >= 5000 and abs(listed.created_ns / 1e9 - time.time()) < 300
        container = docker.create(tag, ["none"], network_mode="none")
        try:
            assert not docker.remove_unused_image(tag) and docker.has_image(tag)
        finally:
            docker.remove(container)
        assert docker.remove_unused_image(tag) and not docker.has_image(tag)
        assert docker.remove_unused_image(tag), "gone is gone"
    finally:
        docker.remove_image(tag)


def test_what_one_rank_had_mapped_lies_on_top_of_the_common_layer(docker: Engine, tmp_path: Path) -> None:
    files = []
    for name in ("common.so", "extra.so"):
        (packages(tmp_path) / name).write_text(name)
        files.append(InstalledFile.at(str(packages(tmp_path) / name)) or pytest.fail("not there"))
    some = of_files(files, extra=[files[1].path])
    common, _ = some.parts()
    try:
        tag = image.ensure_environment_image(docker, some)
        assert docker.has_image(image.environment_tag(common))
        container = docker.create(tag, ["none"], network_mode="none")
        try:
            for file in files:
                with docker.get(container, file.path) as archive, tarfile.open(fileobj=archive, mode="r|") as tar:
                    member = tar.next()
                    assert member is not None and member.size == file.size_bytes
        finally:
            docker.remove(container)
    finally:
        docker.remove_image(image.environment_tag(some))
        docker.remove_image(image.environment_tag(common))


def test_a_changed_file_is_named(docker: Engine, tmp_path: Path) -> None:
    file = packages(tmp_path) / "library.so"
    file.write_text("content")
    some = of_files([InstalledFile.at(str(file)) or pytest.fail("not there")])
    file.write_text("other content")
    with pytest.raises(FacilityError, match=r"library\.so has 13 bytes; at the capture it had 7"):
        image.ensure_environment_image(docker, some)
    assert not docker.has_image(image.environment_tag(some))


def test_an_image_that_goes_by_another_name_serves(docker: Engine, tmp_path: Path) -> None:
    file = packages(tmp_path) / "library.so"
    file.write_text(str(tmp_path))
    some = of_files([InstalledFile.at(str(file)) or pytest.fail("not there")])
    tag, name, version = image.ensure_environment_image(docker, some), "prismdbg/elsewhere", "test"
    other = f"{name}:{version}"
    try:
        container = docker.create(tag, ["none"], network_mode="none")
        docker.commit(container, name, version, labels={image.ENVIRONMENT_LABEL: some.key})
        docker.remove(container)
        docker.remove_image(tag)
        file.unlink()  # a second making would fail
        assert image.ensure_environment_image(docker, some) == other
    finally:
        docker.remove_image(tag)
        docker.remove_image(other)


def test_what_a_client_left_that_was_killed_goes_with_the_next(daemon: Daemon, docker: Engine) -> None:
    """Killed where its container is made, and not started."""
    with short_folder() as one, short_folder() as two:
        spec, _ = program_spec(one)
        ready, tell = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                Engine.start = lambda *_: (os.write(tell, b"x"), signal.pause())  # type: ignore[method-assign, assignment]
                DockerRuntime(daemon).start(spec)
            finally:
                os._exit(1)
        os.close(tell)
        assert os.read(ready, 1) == b"x", "it ended before"
        os.close(ready)
        assert len(docker.labelled(spec.session.name)) == 1
        docker.remove_abandoned()
        assert len(docker.labelled(spec.session.name)) == 1, "its maker lives"
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        again, socket = program_spec(two)
        rank = DockerRuntime(daemon).start(again)
        try:
            assert ask(socket, "status")["count"] >= 0
            assert docker.labelled(spec.session.name) == ()
            assert len(docker.labelled(again.session.name)) == 1
        finally:
            rank.kill()
        wait_for(lambda: not docker.labelled(again.session.name), 20, "the container to be removed")


def test_a_layer_that_was_not_finished_goes_with_the_next(docker: Engine, tmp_path: Path) -> None:
    names = ("common.so", "extra.so")
    for name in names:
        (packages(tmp_path) / name).write_text(f"{tmp_path}/{name}")
    files = [InstalledFile.at(str(packages(tmp_path) / name)) or pytest.fail("not there") for name in names]
    some = of_files(files, extra=[files[1].path])
    common, _ = some.parts()
    made_before = set(made_here(docker))
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            Engine.commit = lambda *_, **__: (os.write(tell, b"x"), signal.pause())  # type: ignore[method-assign, assignment]
            image.ensure_environment_image(Engine(docker.url), some)
        finally:
            os._exit(1)
    os.close(tell)
    try:
        assert os.read(ready, 1) == b"x", "it ended before"
        assert len(set(made_here(docker)) - made_before) == 1
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        image.ensure_environment_image(docker, some)
        assert set(made_here(docker)) <= made_before
    finally:
        os.close(ready)
        docker.remove_image(image.environment_tag(some))
        docker.remove_image(image.environment_tag(common))


def test_a_large_file_of_this_machine_is_seen_and_not_copied(daemon: Daemon) -> None:
    with short_folder() as session, short_folder() as data:
        large = data / "shard"
        with large.open("wb") as file:
            file.truncate(40 << 20)
        spec, socket = program_spec(session)
        known = spec.files[0]
        rank = DockerRuntime(daemon).start(
            replace(spec, files=(known, replace(known, source=large, target=str(large))))
        )
        try:
            assert "Read-only" in str(ask(socket, f"write {large}")["error"])
        finally:
            rank.kill()
        assert large.stat().st_size == 40 << 20


def test_an_engine_of_our_own_starts_once_and_only_it_is_stopped(tmp_path: Path) -> None:
    own = Daemon(tmp_path)
    if reason := own.cannot_start():
        pytest.skip(reason)
    assert own.running_pid() is None and not own.stop()
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: _engine_at(own), range(2))
    try:
        pid = own.running_pid()
        assert pid is not None and one.url == other.url == own.url
        assert one.root_folder().startswith(str(tmp_path))
        assert Daemon(tmp_path).running_pid() == pid, "the next command does not know it"
        assert Daemon(tmp_path / "elsewhere").running_pid() is None
    finally:
        one.close()
        other.close()
        assert own.stop()
    assert own.running_pid() is None
    assert not answers_at(own.url)


def _engine_at(own: Daemon) -> Engine:
    """As `connect` does where nothing else answers."""
    own.start(lambda: answers_at(own.url))
    return Engine(own.url)
