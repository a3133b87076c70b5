"""Who may read RUN and not write into it: the clock of the file system is known from heartbeats alone."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from prismdbg.jobs.storage import file_system_time, job_nodes
from prismdbg.jobs.storage.job_nodes import SILENT_S, node_states
from prismdbg.jobs.storage.run_folder import RunFolder

SKEW_S = (-300.0, 300.0)


class Reader:
    """Its clock differs from that of the file system, by which `beats` beat whenever it waits."""

    def __init__(self, run: RunFolder, ahead_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run, self.ahead_s, self.waited_s, self.now_s = run, ahead_s, 0.0, time.time()
        self.beats: list[str] = []
        clock = SimpleNamespace(time=lambda: self.now_s + ahead_s, monotonic=lambda: self.now_s, sleep=self.passes)
        monkeypatch.setattr(file_system_time, "time", clock)
        monkeypatch.setattr(job_nodes, "time", clock)
        monkeypatch.setattr(job_nodes, "now_in", refused)

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.waited_s += seconds
        for name in self.beats:
            self.node(name)

    def node(self, name: str, *, silent_s: float = 0.0, **supervisor: object) -> None:
        (self.run.nodes / name).mkdir(parents=True, exist_ok=True)
        (self.run.nodes / name / "node.json").write_text("{}")
        (self.run.nodes / name / "supervisor.json").write_text(json.dumps(supervisor))
        beat = self.run.nodes / f"{name}.beat.json"
        beat.write_text("{}")
        os.utime(beat, (self.now_s - silent_s, self.now_s - silent_s))

    def states(self) -> dict[str, str]:
        return {state.name: state.state for state in node_states(self.run)}


def refused(folder: Path) -> float:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(folder))


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Reader]:
    return lambda ahead_s: Reader(RunFolder(tmp_path), ahead_s, monkeypatch)


@pytest.mark.parametrize("ahead_s", SKEW_S)
def test_nodes_that_are_heard_of_are_not_lost_whatever_its_clock_says(
    ahead_s: float, reader: Callable[[float], Reader]
) -> None:
    one = reader(ahead_s)
    one.node("n1", silent_s=0.9)
    one.node("n2", silent_s=SILENT_S + 40)
    one.beats = ["n1"]
    assert one.states() == {"n1": "running", "n2": "lost"}
    waited_s = one.waited_s
    assert 0 < waited_s < 1
    assert one.states() == {"n1": "running", "n2": "lost"} and one.waited_s == waited_s, "it knows that it is heard of"


@pytest.mark.parametrize("ahead_s", SKEW_S)
def test_nodes_that_nobody_hears_of_meanwhile_are_lost(ahead_s: float, reader: Callable[[float], Reader]) -> None:
    one = reader(ahead_s)
    one.node("n1", silent_s=3)
    assert one.states() == {"n1": "lost"}
    assert SILENT_S < one.waited_s < SILENT_S + 1
    assert one.states() == {"n1": "lost"} and one.waited_s < SILENT_S + 1, "that is known now"
    one.node("n1")
    assert one.states() == {"n1": "running"}


def test_a_node_that_falls_silent_later_is_lost_then(reader: Callable[[float], Reader]) -> None:
    one = reader(300)
    one.node("n1")
    one.beats = ["n1"]
    one.states()
    one.beats = []
    one.passes(SILENT_S - 1)
    assert one.states() == {"n1": "running"}
    one.passes(2)
    assert one.states() == {"n1": "lost"}


def test_who_has_the_same_clock_does_not_wait(reader: Callable[[float], Reader]) -> None:
    one = reader(3)
    one.node("n1", silent_s=1)
    one.node("n2", silent_s=SILENT_S + 5)
    assert one.states() == {"n1": "running", "n2": "lost"} and not one.waited_s


def test_nobody_waits_for_a_job_that_has_ended(reader: Callable[[float], Reader]) -> None:
    one = reader(300)
    one.node("n1", silent_s=900, exit_code=0)
    assert one.states() == {"n1": "ended"} and not one.waited_s


def test_nobody_waits_for_a_job_that_was_killed_long_ago(reader: Callable[[float], Reader]) -> None:
    one = reader(0)
    one.node("n1", silent_s=2 * file_system_time.MOST_APART_S)
    assert one.states() == {"n1": "lost"} and not one.waited_s


def test_where_no_heart_has_beaten_the_own_clock_is_all_there_is(reader: Callable[[float], Reader]) -> None:
    one = reader(300)
    one.node("n1")
    (one.run.nodes / "n1.beat.json").unlink()
    assert one.states() == {"n1": "lost"} and not one.waited_s


def test_who_ends_while_it_asks_for_the_time_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[list[Path]] = []
    ask = os.fstat
    monkeypatch.setattr(file_system_time.os, "fstat", lambda fd: left.append([*tmp_path.iterdir()]) or ask(fd))
    assert abs(file_system_time.now_in(tmp_path) - time.time()) < file_system_time.MOST_APART_S
    assert left == [[]]
