"""`--on-incident`: the command gets the incident, has a bound, and ends with the supervisor, whatever it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from spawning import Spawn
from waiting import wait_for

from prismdbg.jobs.record import incident_command
from prismdbg.jobs.record.incident_command import IncidentCommand

ENTRY: dict[str, Any] = {
    "kind": "nan", "text": "rank 2 sends the first NaN", "moment": "11.1", "ranks": [2], "attempt": 0,
    "capsules": ["/runs/1/capsules/nan"],
}  # fmt: skip
BOUND_S = 60.0


def told(command: str, tmp_path: Path, entry: dict[str, Any] | None = None) -> list[str]:
    """What is said of a command that is told of one incident and waited for."""
    problems: list[str] = []
    teller = IncidentCommand(command, tmp_path / "run", problems.append)
    teller.tell("incident", entry or ENTRY)
    teller.finish()
    teller.end()
    return problems


def test_it_gets_the_incident_as_json(tmp_path: Path) -> None:
    assert told(f"cat > {tmp_path / 'seen'}", tmp_path) == []
    seen = json.loads((tmp_path / "seen").read_text())
    assert {name: seen[name] for name in ENTRY} == ENTRY
    assert seen["event"] == "incident" and seen["run"] == str(tmp_path / "run") and seen["evidence"] == []


def test_a_text_of_megabytes_is_cut_and_a_command_that_reads_nothing_is_no_problem(tmp_path: Path) -> None:
    entry = ENTRY | {"text": "x" * (8 << 20)}
    assert told("true", tmp_path, entry) == []
    assert told(f"cat > {tmp_path / 'seen'}", tmp_path, entry) == []
    assert len(json.loads((tmp_path / "seen").read_text())["text"]) == incident_command.MOST_TEXT


def test_a_command_that_fails_is_a_problem(tmp_path: Path) -> None:
    assert told("exit 3", tmp_path) == ["the command of --on-incident failed with exit code 3"]
    assert told("kill -9 $$", tmp_path) == ["the command of --on-incident failed with exit code 137"]


def test_one_that_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incident_command, "BOUND_S", 0.5)
    kept = tmp_path / "pids"
    problems = told(f"sleep 600 & echo $! $$ > {kept}; wait", tmp_path)
    assert problems == ["the command of --on-incident was ended: it took longer than 0 s"]
    for pid in map(int, kept.read_text().split()):
        wait_for(lambda pid=pid: not _lives(pid), BOUND_S, "its end")  # type: ignore[misc]


def test_what_it_leaves_running_is_ended(tmp_path: Path) -> None:
    kept = tmp_path / "pid"
    assert told(f"sleep 600 & echo $! > {kept}", tmp_path) == []
    wait_for(lambda: not _lives(int(kept.read_text())), BOUND_S, "its end")


def test_only_a_few_run_at_once(tmp_path: Path) -> None:
    problems: list[str] = []
    teller = IncidentCommand("exec sleep 600", tmp_path, problems.append)
    for _ in range(incident_command.MOST_AT_ONCE + 1):
        teller.tell("incident", ENTRY)
    assert len(problems) == 1 and "8 of it still run" in problems[0]
    running = list(teller._running)
    teller.end()  # as when somebody does not want to wait
    for started in running:
        assert started.wait(BOUND_S) != 0


def test_an_empty_command_tells_nobody(tmp_path: Path) -> None:
    assert told("", tmp_path) == []


SUPERVISOR = """
import sys
from prismdbg.jobs.record.incident_command import IncidentCommand
entry = dict(kind="nan", text="", moment=None, ranks=[0], attempt=0, capsules=[])
teller = IncidentCommand(sys.argv[1], sys.argv[2], print)
teller.tell("incident", entry)
sys.stdin.read()
"""


def test_it_ends_with_a_supervisor_that_is_killed(tmp_path: Path, spawn: Spawn) -> None:
    kept = tmp_path / "pids"
    command = f"sleep 600 & echo $! $$ > {kept}.new; mv {kept}.new {kept}; wait"
    supervisor = spawn(sys.executable, "-c", SUPERVISOR, command, str(tmp_path), stdin=subprocess.PIPE)
    wait_for(kept.exists, BOUND_S, "the command")
    os.kill(supervisor.pid, signal.SIGKILL)
    for pid in map(int, kept.read_text().split()):
        wait_for(lambda pid=pid: not _lives(pid), BOUND_S, "its end")  # type: ignore[misc]


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
