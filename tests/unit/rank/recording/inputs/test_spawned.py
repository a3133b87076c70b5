"""What multiprocessing gives a process that it spawns is kept as it was, but for its key, or it is said what no replay
can be given; and it starts the process again without its parent."""

from __future__ import annotations

import io
import multiprocessing
import multiprocessing.pool
import multiprocessing.sharedctypes
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures.process import _process_worker
from multiprocessing import context, popen_spawn_posix, reduction
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch.utils.data._utils.worker import _worker_loop

from prismdbg.capsule.spawned import FILE
from prismdbg.jobs.injection import PACKAGE
from prismdbg.rank.recording.inputs import spawned
from prismdbg.rank.recording.inputs.spawned import Given
from prismdbg.settings.rank_config import SPAWNED_VARIABLE

KEY = b"0123456789abcdef0123456789abcdef"
SPAWN: Any = multiprocessing.get_context("spawn")
PROGRAM = """
import multiprocessing, os, sys
from pathlib import Path

def double(number):
    print("child", 2 * number, flush=True)

def main(word, folder):
    parent, key = multiprocessing.parent_process(), bytes(multiprocessing.current_process().authkey)
    print(word, __name__, sys.argv[1:], os.getcwd(), parent.name, parent.is_alive(), flush=True)
    print("key", key.hex(), "PRISMDBG_SPAWNED" in os.environ, flush=True)
    if not Path(folder, "spawned.pickle").exists():
        from prismdbg.rank.recording.inputs import spawned
        print("withheld", spawned.write(Path(folder)), flush=True)
    child = multiprocessing.get_context("spawn").Process(target=double, args=(4,))
    child.start()
    child.join()
    with multiprocessing.get_context("spawn").Lock():
        sys.exit(3 + child.exitcode)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=main, args=("word", sys.argv[1]))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""
COMMAND = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)"


def run(command: list[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder / "inject"),
        "PRISMDBG_CONFIG": str(folder / "config"),
        **more,
    }
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a program, and with what `record` puts in front of its path."""
    (tmp_path / "inject").mkdir()
    hooks = (PACKAGE / "rank" / "inject" / "sitecustomize.py").read_text()
    (tmp_path / "inject" / "sitecustomize.py").write_text(hooks)
    (tmp_path / "inject" / "prismdbg").symlink_to(PACKAGE)
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "config").write_text("{}")
    return tmp_path


def test_it_is_started_again_without_its_parent(place: Path) -> None:
    first = run([sys.executable, "train.py", str(place)], place)
    told, key, withheld, child = first.stdout.splitlines()
    assert (first.returncode, first.stderr, withheld, child) == (3, "", "withheld {}", "child 8")
    assert told.split(" [")[0] == "word __mp_main__"
    again = run(
        [sys.executable, "-c", COMMAND, "--multiprocessing-fork"], place, **{SPAWNED_VARIABLE: str(place / FILE)}
    )
    told_again, key_again, child_again = again.stdout.splitlines()
    assert (again.returncode, again.stderr, told_again, child_again) == (3, "", told, child)
    assert key_again.split()[2] == "False"
    keys = [bytes.fromhex(line.split()[1]) for line in (key, key_again)]
    assert len(keys[0]) == len(keys[1]) == 32 and len({*keys, bytes(32)}) == 3
    kept = (place / FILE).read_bytes()
    assert keys[0] not in kept and keys[1] not in kept
    assert (place / FILE).stat().st_mode & 0o777 == 0o600


def pickles(*arguments: object, key: bytes = KEY) -> bytes:
    """As multiprocessing writes them into the pipe of a process with these arguments."""
    out, popen = io.BytesIO(), object.__new__(popen_spawn_posix.Popen)
    vars(popen)["_fds"] = []
    context.set_spawning_popen(popen)
    try:
        reduction.dump({"authkey": key, "sys_argv": ["train.py"]}, out)
        reduction.dump((key, arguments), out)
    finally:
        context.set_spawning_popen(None)
    return out.getvalue()


def given(data: bytes, key: bytes = KEY) -> Given:
    """That has read these pickles. What is in the second one is not made."""
    found, file = Given(), io.BytesIO(data)
    assert found.load(pickle.load, file)["authkey"] == key
    found.load(lambda file: file.read(), file)
    return found


def test_the_key_is_not_kept(tmp_path: Path) -> None:
    data = pickles("a", 3)
    assert given(data).write(tmp_path) == {}
    assert data.count(KEY) == 2
    assert (tmp_path / FILE).read_bytes() == data.replace(KEY, bytes(len(KEY)))


@pytest.mark.parametrize("key", [b"", b"a", b"k" * 300])
def test_nor_is_one_that_the_program_chose_and_nothing_else_changes(tmp_path: Path, key: bytes) -> None:
    assert given(pickles("abca", key=key), key).write(tmp_path) == {}
    assert (tmp_path / FILE).read_bytes() == pickles("abca", key=bytes(len(key)))


def test_it_is_written_once(tmp_path: Path) -> None:
    found = given(pickles())
    assert (found.write(tmp_path), found.write(tmp_path / "lost")) == ({}, {})


class Lent:
    """Is made while it is pickled: what is made for a process is made then."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make

    def __reduce__(self) -> tuple[object, ...]:
        return tuple, ([self._make()],)


LENT: list[tuple[Callable[[], object], str]] = [
    (lambda: SPAWN.Value("i", 3), "a shared value"),
    (lambda: _worker_loop, "the queues of a DataLoader"),
    (lambda: vars(multiprocessing.pool)["worker"], "the queues of a pool"),
    (lambda: _process_worker, "the queues of a pool"),
    (lambda: reduction.DupFd(0), "an open file"),
    (lambda: torch.ones(3), "a tensor in shared memory"),
    (lambda: torch.nn.Linear(2, 2), "a tensor in shared memory"),
]


@pytest.mark.parametrize(("make", "lack"), LENT)
def test_what_only_the_parent_has_is_named(tmp_path: Path, make: Callable[[], object], lack: str) -> None:
    found = given(pickles("a", {"of": Lent(make)}))
    assert len(found._data) == 0
    assert found.write(tmp_path) == {"withheld": f"{lack} among its arguments"}
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("name", ["Queue", "SimpleQueue", "JoinableQueue", "Lock", "Condition", "Event", "Pipe"])
def test_what_a_replay_has_stand_ins_for_is_kept(tmp_path: Path, name: str) -> None:
    for maker in (SPAWN, torch.multiprocessing.get_context("spawn")):
        lent = getattr(maker, name)()
        assert given(pickles(lent)).write(tmp_path) == {}
        (tmp_path / FILE).unlink()
    assert given(pickles(SPAWN.Barrier(2))).write(tmp_path) == {}


def test_a_socket_is_named_beside_a_connection(tmp_path: Path) -> None:
    with socket.socket() as lent:
        assert given(pickles(lent, SPAWN.Pipe())).write(tmp_path) == {"withheld": "a socket among its arguments"}


def test_so_is_shared_memory(tmp_path: Path) -> None:
    memory = SharedMemory(create=True, size=8)
    try:
        assert given(pickles(memory)).write(tmp_path) == {"withheld": "shared memory among its arguments"}
    finally:
        memory.close()
        memory.unlink()


@pytest.mark.parametrize(
    "arguments", [(torch.float32, torch.device("cpu")), ("multiprocessing.queues.Queue",), (2.5, [None])]
)
def test_plain_values_are_not(tmp_path: Path, arguments: tuple[object, ...]) -> None:
    assert given(pickles(*arguments)).write(tmp_path) == {}


def test_arguments_that_are_too_large_are_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawned, "MOST_BYTES", 1000)
    found = given(pickles(b"a" * 1001))
    assert len(found._data) == 0
    assert found.write(tmp_path) == {"withheld": "arguments of more than 1000 B"}
    assert not (tmp_path / FILE).exists()


def test_a_large_argument_is_in_memory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawned, "MOST_BYTES", 1000)
    data = io.BytesIO(pickles(bytes(8 << 20)))
    found = Given()
    found.load(pickle.load, data)
    tracemalloc.start()
    try:
        loaded: Any = found.load(pickle.load, data)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(loaded[1][0]) == 8 << 20
    assert most_bytes < 12 << 20
    assert found.write(tmp_path) == {"withheld": "arguments of more than 1000 B"}


def test_what_is_read_into_its_place_is_kept(tmp_path: Path) -> None:
    data = pickles(bytes(range(256)) * 4096, "a")
    found, file = Given(), io.BytesIO(data)
    assert [found.load(pickle.load, file) for _ in range(2)][1] == (KEY, (bytes(range(256)) * 4096, "a"))
    assert found.write(tmp_path) == {}
    assert (tmp_path / FILE).read_bytes() == data.replace(KEY, bytes(len(KEY)))


def test_a_file_that_is_not_whole_is_removed(tmp_path: Path) -> None:
    """The limit on the size of a file stands for a full disk."""
    found = given(pickles(bytes(100_000)))
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        withheld = found.write(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert withheld == {"withheld": "arguments that could not be written (File too large)"}
    assert not (tmp_path / FILE).exists()


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"of another")
    assert given(pickles()).write(tmp_path) == {"withheld": "arguments that could not be written (File exists)"}
    assert (tmp_path / FILE).read_bytes() == b"of another"


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    withheld = given(pickles()).write(tmp_path / "lost")
    assert withheld == {"withheld": "arguments that could not be written (No such file or directory)"}


def test_a_child_that_the_process_forks_runs_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = given(pickles())
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert found.write(tmp_path) == {}
    assert not (tmp_path / FILE).exists()
