"""A rank whose process is stopped answers nothing: a capture says so, and how it goes on."""

from __future__ import annotations

import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from waiting import wait_for

from prismdbg.errors import WaitTimeout
from prismdbg.jobs.capture import capture
from prismdbg.jobs.storage.run_folder import write_json


@pytest.fixture
def child() -> Iterator[psutil.Popen]:
    with psutil.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL) as process:
        yield process
        process.kill()


@pytest.fixture
def folder(child: psutil.Popen) -> Iterator[Path]:
    """Of a rank that is the child; somebody connects for it, as the kernel does for a stopped process."""
    with tempfile.TemporaryDirectory(prefix="pd") as name, socket.socket(socket.AF_UNIX) as agent:
        folder, path = Path(name) / "0", Path(name) / "0.sock"
        folder.mkdir()
        agent.bind(str(path))
        agent.listen()
        described = {
            "pid": child.pid,
            "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
            "hardware": {"node": platform.node()},
            "uid": os.getuid(),
            "socket": str(path),
        }
        write_json(folder / "rank.json", described)
        yield folder


def stop(child: psutil.Popen) -> None:
    child.send_signal(signal.SIGSTOP)
    wait_for(lambda: child.status() == psutil.STATUS_STOPPED, 20, "the process to stop")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "STOPPED_S", 0.0)


def test_it_is_refused_with_what_lets_it_continue(folder: Path, child: psutil.Popen, at_once: None) -> None:
    capture.await_agent(folder, print)
    stop(child)
    with pytest.raises(WaitTimeout, match=rf"^rank 0 cannot answer: its process {child.pid} is stopped") as caught:
        capture.await_agent(folder, print)
    assert f"`kill -CONT {child.pid}`" in caught.value.hint


def test_one_that_stops_during_the_capture_is_told_as_such(folder: Path, child: psutil.Popen, at_once: None) -> None:
    with pytest.raises(WaitTimeout, match=r"is stopped") as caught, capture.told_of_its_end(folder):
        stop(child)
        raise WaitTimeout("waited 30 s for the agent's answer")
    assert "kill -CONT" in caught.value.hint


def test_a_wait_for_a_rank_that_runs_stays_what_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "ENDING_S", 0.0)
    with pytest.raises(WaitTimeout, match="the agent's answer"), capture.told_of_its_end(folder):
        raise WaitTimeout("waited 30 s for the agent's answer")


def test_a_short_stop_passes(folder: Path, child: psutil.Popen, monkeypatch: pytest.MonkeyPatch) -> None:
    stop(child)
    monkeypatch.setattr("prismdbg.jobs.capture.capture.time.sleep", lambda _: child.send_signal(signal.SIGCONT))
    capture.refuse_stopped(folder)
    assert child.status() != psutil.STATUS_STOPPED
