"""A folder that a hostile rank wrote into: nothing outside it is read, written or waited for."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from counting import short_folder
from disk_space import files_of_any_size

from prismdbg.errors import CapsuleError, RankLost
from prismdbg.protocol.client import AgentClient
from prismdbg.runtime.rank_folder import MAX_COPIED_BYTES, Output, RankFolder
from prismdbg.runtime.spec import OUTPUT

SECRET = "root:x:0:0"


@pytest.fixture
def own() -> Iterator[RankFolder]:
    with short_folder() as home, RankFolder(home / "rank") as folder:
        yield folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


def link(name: Path, secret: Path) -> None:
    name.symlink_to(secret)


def hard_link_of_a_link(name: Path, secret: Path) -> None:
    between = name.with_name(f"{name.name}.link")
    link(between, secret)
    os.link(between, name, follow_symlinks=False)


def fifo(name: Path, _: Path) -> None:
    os.mkfifo(name)


def folder(name: Path, _: Path) -> None:
    (name / "in" / "it").mkdir(parents=True)


def nothing(_: Path, __: Path) -> None:
    return None


def sparse(name: Path, _: Path) -> None:
    with files_of_any_size(), name.open("wb") as file:
        file.truncate(1 << 42)


REPLACED = pytest.mark.parametrize(
    "replace", [link, hard_link_of_a_link, fifo, folder, nothing, sparse], ids=lambda f: f.__name__
)
Replace = Callable[[Path, Path], None]


@REPLACED
def test_the_output_stays_what_it_was(own: RankFolder, secret: Path, replace: Replace) -> None:
    output = own.path / OUTPUT
    output.write_text("printed")
    output.unlink()
    replace(output, secret)
    assert own.output.text() == "printed"
    own.output.cut(3)
    assert (own.output.text(), own.output.size_bytes) == ("pri", 3)
    own.renew()
    assert own.output.text() == ""
    output.write_text("again")
    assert own.output.text() == "again"
    assert [entry.name for entry in own.path.iterdir()] == [OUTPUT]
    assert secret.read_text() == SECRET


@REPLACED
def test_it_can_be_started_again_from_a_checkpoint(own: RankFolder, secret: Path, replace: Replace) -> None:
    output, agent, kept = own.path / OUTPUT, own.path / "agent", own.path / "kept"
    kept.write_text("open at the checkpoint")
    output.unlink()
    replace(output, secret)
    replace(agent, secret)
    own.mend("agent")
    output.write_text("again")
    assert (own.output.text(), kept.read_text(), agent.exists()) == ("again", "open at the checkpoint", False)
    assert secret.read_text() == SECRET


def test_of_a_huge_output_only_the_end_is_read(own: RankFolder) -> None:
    with files_of_any_size(), (own.path / OUTPUT).open("r+b") as file:
        file.seek(1 << 42)
        file.write(b"the end")
    assert own.output.newest(7) == b"the end"
    assert own.output.text(7) == f"... {1 << 42} bytes left out\nthe end"


@REPLACED
def test_only_a_socket_of_its_own_is_connected_to(own: RankFolder, secret: Path, replace: Replace) -> None:
    """Not to the Docker engine's, by a link."""
    elsewhere = own.path.parent / "docker.sock"
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(elsewhere))
        engine.listen()
        replace(own.path / "agent", elsewhere if replace is link else secret)
        with pytest.raises(RankLost, match="no agent answers"):
            AgentClient(own.path / "agent", reach=lambda: own.reach("agent"))
        engine.setblocking(False)
        with pytest.raises(BlockingIOError):
            engine.accept()


def test_its_own_socket_is_reached(own: RankFolder) -> None:
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(own.path / "agent"))
        agent.listen()
        AgentClient(own.path / "agent", reach=lambda: own.reach("agent")).close()
        agent.settimeout(5)
        agent.accept()[0].close()


def test_a_trace_is_copied_before_it_is_read(own: RankFolder, tmp_path: Path) -> None:
    trace = own.path / "trace"
    trace.mkdir()
    for number in range(2):
        (trace / f"memory.{number}.seg").write_bytes(bytes([number]) * 1000)
    copy = own.copied("trace", tmp_path)
    with (trace / "memory.1.seg").open("r+b") as file:
        file.truncate(0)
    assert [path.read_bytes() for path in sorted(copy.iterdir())] == [b"\0" * 1000, b"\1" * 1000]
    (trace / "memory.1.seg").write_bytes(b"\2" * 1000)
    assert own.copied("trace", tmp_path) == copy
    assert (copy / "memory.1.seg").read_bytes() == b"\2" * 1000


def taken_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def test_holes_of_a_trace_take_no_room(own: RankFolder, tmp_path: Path) -> None:
    (own.path / "trace").mkdir()
    with (own.path / "trace" / "memory.0.seg").open("wb") as file:
        file.write(b"begin")
        file.seek(1 << 30)
        file.write(b"end")
    copy = own.copied("trace", tmp_path) / "memory.0.seg"
    assert taken_bytes(tmp_path) < 1 << 20
    with copy.open("rb") as file:
        assert file.read(8) == b"begin\0\0\0"
        file.seek(1 << 30)
        assert file.read() == b"end"


def test_only_what_the_rank_has_now_is_kept_as_a_copy(own: RankFolder, tmp_path: Path) -> None:
    for name in ("trace", "trace.1"):
        (own.path / name).mkdir()
        (own.path / name / "memory.0.seg").write_bytes(b"x" * 1000)
    first = own.copied("trace", tmp_path)
    second = own.copied("trace.1", tmp_path)
    assert not first.exists()
    (own.path / "trace.1" / "memory.0.seg").rename(own.path / "trace.1" / "memory.1.seg")
    own.copied("trace.1", tmp_path)
    assert [path.name for path in second.iterdir()] == ["memory.1.seg"]


def test_a_trace_that_would_fill_the_disk_is_refused_and_nothing_of_it_stays(
    own: RankFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own.path / "trace").mkdir()
    for number in range(3):
        (own.path / "trace" / f"memory.{number}.seg").write_bytes(b"x" * 1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3000))
    with pytest.raises(CapsuleError, match="does not fit"):
        own.copied("trace", tmp_path)
    assert taken_bytes(tmp_path) == 0


@pytest.mark.parametrize("replace", [link, fifo, folder, sparse], ids=lambda f: f.__name__)
def test_a_trace_of_anything_but_files_is_refused(
    own: RankFolder, secret: Path, tmp_path: Path, replace: Replace
) -> None:
    (own.path / "trace").mkdir()
    replace(own.path / "trace" / "memory.0.seg", secret)
    with pytest.raises(CapsuleError):
        own.copied("trace", tmp_path / "copies")
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.seg")) < MAX_COPIED_BYTES >> 10


@pytest.mark.parametrize("name", ["", ".", "..", "../secret", "/etc", "lin\0k", "link", "missing"])
def test_a_trace_lies_in_the_ranks_folder(own: RankFolder, tmp_path: Path, name: str) -> None:
    (own.path / "link").symlink_to("/etc")
    with pytest.raises(CapsuleError):
        own.copied(name, tmp_path)


def test_folders_nested_to_any_depth_go(own: RankFolder) -> None:
    here = os.open(own.path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.chmod("d", 0, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    own.renew()
    assert [entry.name for entry in own.path.iterdir()] == [OUTPUT]


def test_an_output_can_be_read_while_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_bytes(b"abc")
    output = Output(os.open(path, os.O_RDWR))
    try:
        assert output.read(1, 100) == b"bc" and output.read(3, 100) == b""
        path.write_bytes(b"abcdef")
        assert output.read(3, 2) == b"de"
    finally:
        output.close()
