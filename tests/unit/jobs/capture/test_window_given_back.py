"""A capture's payload window does not outlive it, also where the rank answers late or is busy at its end."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import wait_for

from prismdbg.errors import PrismError, RankLost, UsageError, WaitTimeout
from prismdbg.jobs.capture import capture
from prismdbg.protocol.client import AgentClient
from prismdbg.settings.rank_config import Mode, RankConfig

CONFIG = RankConfig(mode=Mode.RECORD, socket_dir="", cache_dir="")
BACK = {"on": CONFIG.payload_window[0], "steps": CONFIG.payload_window[1], "size_bytes": CONFIG.payload_window[2]}


@contextmanager
def answering_late(path: Path) -> Iterator[list[dict[str, Any]]]:
    """An agent of a rank that holds the interpreter for long: what it reads once the client has gone."""
    read: list[dict[str, Any]] = []

    def serve() -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as stream:
            read.extend(map(json.loads, stream))

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield read
        thread.join(30)


def test_a_rank_that_answers_late_reads_that_nobody_waits_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "WINDOW_S", 0.1)
    monkeypatch.setattr(capture, "LEAVE_S", 0.1)
    holder = capture.new_holder()
    with answering_late(tmp_path / "s") as read, AgentClient(tmp_path / "s") as agent:
        with pytest.raises(WaitTimeout):
            capture._take_window(agent, CONFIG, holder)
        agent.close()
    assert [(one["do"], one.get("back", False), one["token"]) for one in read] == [
        ("window", False, holder["token"]),
        ("window", True, holder["token"]),
    ]


def asked_after(errors: list[PrismError], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a rank is asked that cannot be asked so often."""
    asked: list[dict[str, Any]] = []

    @contextmanager
    def agent_of(_: Path, **__: object) -> Iterator[Any]:
        if errors:
            raise errors.pop(0)
        yield SimpleNamespace(ask=lambda verb, **told: asked.append({"do": verb, **told}))

    monkeypatch.setattr(capture, "agent_of", agent_of)
    monkeypatch.setattr(capture, "AGAIN_S", 0.01)
    return asked


def test_a_busy_rank_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor lives as long as the job: the rank would keep the window for it."""
    asked = asked_after([UsageError("busy"), RankLost("no agent answers"), WaitTimeout("late")], monkeypatch)
    monkeypatch.setattr(capture, "still_runs", lambda _: True)
    capture._window_back(tmp_path, CONFIG, {"token": "t"})
    wait_for(lambda: asked, 30, "the window to be given back")
    assert asked == [{"do": "window", "back": True, **BACK, "token": "t"}]


def test_a_rank_that_has_ended_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[PrismError] = [RankLost("it has ended")]
    asked = asked_after(errors, monkeypatch)
    monkeypatch.setattr(capture, "still_runs", lambda _: False)
    before = threading.active_count()
    capture._window_back(tmp_path, CONFIG, {"token": "t"})
    wait_for(lambda: threading.active_count() <= before, 30, "the last try")
    assert not asked and not errors
