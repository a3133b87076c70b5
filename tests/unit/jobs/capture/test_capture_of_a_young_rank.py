"""A rank that has just started has a folder before it has an agent: a capture waits for it, and says so."""

from __future__ import annotations

import os
import platform
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismdbg.errors import RankLost
from prismdbg.jobs.capture import capture
from prismdbg.jobs.storage.run_folder import write_json


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pd") as name:  # pytest's own paths are too long for a socket
        folder = Path(name) / "0"
        folder.mkdir()
        yield folder


def describe(folder: Path) -> None:
    described = {
        "pid": os.getpid(),
        "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
        "hardware": {"node": platform.node()},
        "uid": os.getuid(),
        "socket": str(folder.parent / "0.sock"),
    }
    write_json(folder / "rank.json", described)


@pytest.mark.parametrize("is_described", [False, True])
def test_it_is_waited_for_and_said(folder: Path, monkeypatch: pytest.MonkeyPatch, is_described: bool) -> None:
    monkeypatch.setattr(capture, "PROGRESS_S", 0.0)
    said: list[str] = []
    if is_described:
        describe(folder)
    with socket.socket(socket.AF_UNIX) as agent:

        def begins_only_now(text: str) -> None:
            said.append(text)
            describe(folder)
            agent.bind(str(folder.parent / "0.sock"))
            agent.listen()

        capture.await_agent(folder, begins_only_now)
    assert said == ["rank 0 has just started; waiting up to 10 s for its agent"]


def test_one_that_answers_is_not_waited_for(folder: Path) -> None:
    describe(folder)
    said: list[str] = []
    with socket.socket(socket.AF_UNIX) as agent:
        agent.bind(str(folder.parent / "0.sock"))
        agent.listen()
        capture.await_agent(folder, said.append)
    assert not said


def test_the_wait_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "STARTING_S", 0.05)
    with pytest.raises(RankLost, match=r"rank 0 cannot be captured: its folder in RUN has no rank\.json"):
        capture.await_agent(folder, lambda _: None)
    describe(folder)
    capture.await_agent(folder, lambda _: None)
    with pytest.raises(RankLost, match="no agent answers"), capture.agent_of(folder):
        pass
