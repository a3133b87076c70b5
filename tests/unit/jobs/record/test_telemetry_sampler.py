"""The sampler's process, as the supervisor keeps it: it never harms who started it, and what it read can be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from waiting import wait_for

from prismdbg.jobs.record import telemetry_sampler
from prismdbg.jobs.record.telemetry_sampler import TelemetrySampler
from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.reader import read_telemetry
from prismdbg.telemetry.series import Telemetry

BOUND_S = 60.0
PERIOD_NS = 20_000_000


@contextmanager
def started(folder: Path, problems: list[str]) -> Iterator[tuple[TelemetrySampler, psutil.Process]]:
    before = {child.pid for child in psutil.Process().children()}
    sampler = TelemetrySampler(folder, PERIOD_NS, problems.append)
    sampler.start()
    (child,) = (child for child in psutil.Process().children() if child.pid not in before)
    try:
        yield sampler, child
    finally:
        sampler.stop()


def telemetry(folder: Path) -> Telemetry:
    found = read_telemetry(folder)
    assert found is not None
    return found


def readings_of(folder: Path, subject: str) -> int:
    found = read_telemetry(folder)
    series = found.find(subject, names.CPU_TIME) if found is not None else None
    return len(series.values) if series is not None else 0


def test_a_watched_rank_is_read_until_it_is_stopped(tmp_path: Path) -> None:
    problems: list[str] = []
    with started(tmp_path / "t", problems) as (sampler, child):
        sampler.watch("0", os.getpid())
        wait_for(lambda: readings_of(tmp_path / "t", "rank 0") > 5, BOUND_S, "readings of the rank")
    assert problems == []
    assert not child.is_running()
    assert telemetry(tmp_path / "t").damage == ""


def test_what_was_read_before_it_was_killed_can_be_read(tmp_path: Path) -> None:
    problems: list[str] = []
    with started(tmp_path / "t", problems) as (sampler, child):
        sampler.watch("0", os.getpid())
        wait_for(lambda: readings_of(tmp_path / "t", "rank 0") > 0, BOUND_S, "readings of the rank")
        child.kill()
        wait_for(lambda: child.status() == psutil.STATUS_ZOMBIE, BOUND_S, "the sampler to be dead")
        sampler.watch("1", os.getpid())
    assert readings_of(tmp_path / "t", "rank 0") > 0
    assert telemetry(tmp_path / "t").damage == ""
    assert "telemetry of rank 1 is not recorded" in problems[0]
    assert problems[1] == "telemetry is incomplete: its sampler ended early, with exit code -9"


def test_one_that_hangs_is_killed_within_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_sampler, "STOP_S", 0.2)
    problems: list[str] = []
    with started(tmp_path / "t", problems) as (_, child):
        child.send_signal(signal.SIGSTOP)
    assert problems == ["the sampler of telemetry did not end within 0.2 s and was killed"]
    assert not child.is_running()


def test_a_rank_that_cannot_be_seen_is_missing(tmp_path: Path) -> None:
    with started(tmp_path / "t", []) as (sampler, _):
        sampler.watch("7", None)
        wait_for(lambda: _why_missing(tmp_path / "t"), BOUND_S, "it to be said")
    assert "cannot be seen from the supervisor" in _why_missing(tmp_path / "t")


def _why_missing(folder: Path) -> str:
    found = read_telemetry(folder)
    return found.missing.get(("rank 7", names.CPU_TIME), "") if found is not None else ""


def test_it_ends_when_whoever_started_it_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from prismdbg.jobs.record.telemetry_sampler import TelemetrySampler\n"
        f"s = TelemetrySampler(Path({str(tmp_path / 't')!r}), {PERIOD_NS}, print); s.start()\n"
        "print(s._process.pid, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        sampler = psutil.Process(int(parent.stdout.readline()))
        wait_for(lambda: read_telemetry(tmp_path / "t"), BOUND_S, "its first readings")
        parent.kill()
    wait_for(lambda: not sampler.is_running() or sampler.status() == psutil.STATUS_ZOMBIE, BOUND_S, "its end")


def test_without_telemetry_nothing_is_started(tmp_path: Path) -> None:
    before = psutil.Process().children()
    sampler = TelemetrySampler(tmp_path / "t", 0, pytest.fail)
    sampler.start()
    sampler.watch("0", os.getpid())
    sampler.stop()
    assert psutil.Process().children() == before
    assert not (tmp_path / "t").exists()


def test_one_that_cannot_be_started_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_sampler.sys, "executable", str(tmp_path / "python"))
    problems: list[str] = []
    sampler = TelemetrySampler(tmp_path / "t", PERIOD_NS, problems.append)
    sampler.start()
    sampler.stop()
    assert len(problems) == 1
    assert problems[0].startswith("no telemetry is recorded: its sampler cannot be started")
