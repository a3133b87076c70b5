"""Whether a rank is there: a zombie has ended, and a process that cannot be seen from here is never called dead."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tiny_log import write_training
from waiting import wait_for

from prismdbg.capsule.log.format import Status
from prismdbg.jobs.storage.ranks_alive import (
    RankProcess,
    is_alive,
    is_in_a_container_here,
    pid_here,
    was_replaced,
)
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.jobs.storage.run_report import rank_states
from prismdbg.settings.boot import boot_id


def namespace_of(pid: int) -> int:
    return Path(f"/proc/{pid}/ns/pid").stat().st_ino


def described(folder: Path, pid: int, namespace: int, node: str = "") -> RankProcess:
    folder.mkdir(exist_ok=True)
    rank: dict[str, Any] = {"pid": pid, "pid_namespace": namespace, "hardware": {"node": node or platform.node()}}
    (folder / "rank.json").write_text(json.dumps(rank))
    return RankProcess(folder)


@pytest.fixture
def in_a_namespace() -> Iterator[psutil.Popen]:
    """`unshare` around a process that is number 1 in its own PID namespace."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a PID namespace needs root and unshare")
    process = psutil.Popen(["unshare", "--pid", "--fork", "--kill-child", "sleep", "600"])
    try:
        wait_for(lambda: process.children(), 20, "the process inside")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)


@pytest.mark.parametrize(
    ("boot", "namespace", "is_here"),
    [("", 1, True), ("another", 1, False), ("", 0, False), (None, 1, False)],
    ids=["another namespace", "another machine", "a copy of this machine", "of an older version"],
)
def test_a_container_with_a_host_name_of_its_own_is_known_by_the_boot(
    boot: str | None, namespace: int, is_here: bool
) -> None:
    """`boot` empty: that of this machine. `namespace` 0: this one."""
    rank: dict[str, Any] = {"pid": os.getpid(), "hardware": {"node": "box"}}
    rank["pid_namespace"] = namespace or namespace_of(os.getpid())
    if boot is not None:
        rank["boot_id"] = boot or boot_id()
    assert is_in_a_container_here(rank) is is_here
    assert pid_here(rank) is None, "no process of that namespace is there"


def test_a_zombie_has_ended(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        wait_for(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, 20, "a zombie")
        assert Path(f"/proc/{child.pid}").exists()
        assert not is_alive(child.pid)
        assert not described(tmp_path / "0", child.pid, namespace_of(os.getpid())).is_alive()


def test_a_rank_in_a_namespace_below_is_found_under_the_number_it_has_here(
    tmp_path: Path, in_a_namespace: psutil.Popen
) -> None:
    (inside,) = in_a_namespace.children()
    process = described(tmp_path / "0", 1, namespace_of(inside.pid))
    assert (process.pid, process.is_alive(), process.is_out_of_sight) == (inside.pid, True, False)
    in_a_namespace.kill()
    in_a_namespace.wait(20)
    wait_for(lambda: not process.is_alive(), 20, "its end to be seen")


@pytest.mark.parametrize("elsewhere", ["node", "namespace"])
def test_what_cannot_be_seen_is_not_dead(tmp_path: Path, elsewhere: str) -> None:
    write_training(tmp_path / "0")
    node = "another-node" if elsewhere == "node" else ""
    namespace = 1 if elsewhere == "namespace" else namespace_of(os.getpid())
    process = described(tmp_path / "0", 1 << 22, namespace, node)
    assert process.is_out_of_sight
    assert not process.is_alive()
    assert not process.died_without_a_word()


@pytest.mark.parametrize(("time_ns", "is_last_word"), [(5, False), (1 << 62, True)])
def test_an_exception_of_a_thread_is_a_last_word_only_where_nothing_came_after_it(
    time_ns: int, is_last_word: bool, tmp_path: Path
) -> None:
    write_training(tmp_path / "0").note("incident", time_ns=time_ns, incident="exception", thread=True)
    process = described(tmp_path / "0", 1 << 22, namespace_of(os.getpid()))
    assert process.died_without_a_word() is not is_last_word
    assert process.raised_in_collective() is (None if not is_last_word else False)
    assert process.has_failed() is False, "a thread's exception ends no process"


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("has_printed", [False, True])
def test_a_rank_that_says_its_exit_code_ends_with_a_word(code: int, has_printed: bool, tmp_path: Path) -> None:
    """Also with 0, and whatever it has printed before: only an exception that it did not outlive ends it otherwise."""
    log = write_training(tmp_path / "0")
    if has_printed:
        log.note("incident", time_ns=1 << 61, incident="exception", type="ValueError", text="printed")
    log.note("exit", time_ns=1 << 62, code=code)
    process = described(tmp_path / "0", 1 << 22, namespace_of(os.getpid()))
    assert not process.died_without_a_word()
    assert process.ended_by_itself() is (code == 0 or not has_printed)


def test_a_rank_that_raised_has_failed_also_while_it_ends(tmp_path: Path) -> None:
    log = write_training(tmp_path / "0")
    process = described(tmp_path / "0", os.getpid(), namespace_of(os.getpid()))
    assert process.is_alive() and not process.has_failed()
    log.note("incident", time_ns=1 << 62, incident="exception", type="RuntimeError", text="Connection closed by peer")
    assert process.has_failed()


@pytest.mark.parametrize(
    ("is_inside", "text"), [(True, "Connection closed by peer"), (True, "broken"), (False, "Connection reset by peer")]
)
def test_a_rank_that_lost_a_peer_raised_in_a_collective_also_while_it_ends(
    is_inside: bool, text: str, tmp_path: Path
) -> None:
    log = write_training(tmp_path / "0")
    process = described(tmp_path / "0", os.getpid(), namespace_of(os.getpid()))
    assert process.raised_in_collective() is None
    if is_inside:
        log.complete(log.issue(3, 1), status=Status.FAILED)
    log.note("incident", time_ns=1 << 62, incident="exception", type="RuntimeError", text=text)
    assert process.is_alive() and process.raised_in_collective()


def test_a_process_that_put_another_program_in_its_place_did_not_die(tmp_path: Path) -> None:
    """It keeps its number and its start; its log has no end."""
    namespace = namespace_of(os.getpid())

    def folder(name: str, pid: int, ticks: int) -> Path:
        path = tmp_path / "ranks" / name
        write_training(path, 1)
        rank = {"pid": pid, "pid_namespace": namespace, "started_ticks": ticks, "hardware": {"node": platform.node()}}
        (path / "rank.json").write_text(json.dumps(rank))
        return path

    first, second, third = folder("0", 7, 1), folder("0.1", 7, 1), folder("0.2", 7, 2)
    other = folder("1", 7, 1)
    assert [was_replaced(path) for path in (first, second, third, other)] == [True, False, False, False]
    states = {state.name: state.state for state in rank_states(RunFolder(tmp_path))}
    assert states == {"0": "ended", "0.1": "died", "0.2": "died", "1": "died"}


def test_a_stopped_process_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "ranks" / "0"
    write_training(path)

    def state() -> str:
        (found,) = rank_states(RunFolder(tmp_path))
        return found.state

    with psutil.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        try:
            process = described(path, child.pid, namespace_of(os.getpid()))
            assert (state(), process.is_stopped()) == ("running", False)
            child.send_signal(signal.SIGSTOP)
            wait_for(process.is_stopped, 20, "the process to stop")
            assert state() == "stopped" and process.is_alive()
        finally:
            child.kill()
    assert not process.is_stopped()


def test_a_damaged_log_accuses_nobody(tmp_path: Path) -> None:
    write_training(tmp_path / "0")
    (segment,) = (tmp_path / "0").glob("events.*.seg")
    data = segment.read_bytes()
    segment.write_bytes(data[:200] + b"\xff" * 40 + data[240:])
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        process = described(tmp_path / "0", child.pid, namespace_of(os.getpid()))
        child.wait(20)
        assert process.ended_by_itself() and not process.died_without_a_word()
        assert process.raised_in_collective() is None and not process.has_failed()
