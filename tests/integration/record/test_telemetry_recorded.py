"""`record --telemetry`: a real job with real sensors, read by `telemetry` and `why`; and a sampler that is killed."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
from chain import PARTS, prismdbg, recording
from jobs import forked
from waiting import wait_for

from prismdbg.jobs.rank_capsule import capsule_of
from prismdbg.telemetry import sampler
from prismdbg.telemetry.reader import read_telemetry

pytestmark = pytest.mark.job

PROGRAM = PARTS / "sleeps.py"
BOUND_S = 120.0


def test_why_says_that_the_late_rank_slept_and_where(tmp_path: Path) -> None:
    with recording(forked(PROGRAM, ranks=2), tmp_path, "--telemetry", "20ms", "--window", "all") as job:
        ended = job.end()
    assert ended.code == 0, ended.output[-3000:]
    shown = prismdbg("telemetry", job.run.path, "--json").json
    ranks = {sensor["subject"] for sensor in shown["sensors"] if sensor["sensor"] == "run_queue_wait"}
    assert ranks == {"rank 0", "rank 1"}
    packed = prismdbg("telemetry", capsule_of(job.run.path, 1, print), "--json").json
    assert {sensor["subject"] for sensor in packed["sensors"] if sensor["sensor"] == "cpu_time"} >= {"rank 1"}
    verdicts = prismdbg("why", job.run.path, "--json").json["verdicts"]
    (late,) = (verdict for verdict in verdicts if verdict["kind"] in ("straggler", "delay"))
    assert late["ranks"] == [1]
    assert late["cause"]["why"] == "asleep"
    assert "sleeps.py" in late["cause"]["text"]


def test_a_sampler_that_is_killed_harms_neither_the_job_nor_its_record(tmp_path: Path) -> None:
    with recording(forked(PROGRAM, ranks=2), tmp_path, "--telemetry") as job:
        (found,) = wait_for(lambda: _samplers(job.run.path), BOUND_S, "the sampler")
        wait_for(lambda: read_telemetry(job.run.telemetry), BOUND_S, "its first readings")
        found.kill()
        ended = job.end()
    assert ended.code == 0, ended.output[-3000:]
    problems = json.loads(job.run.supervisor_json.read_text())["problems"]
    assert any("telemetry is incomplete: its sampler ended early" in problem for problem in problems)
    kept = read_telemetry(job.run.telemetry)
    assert kept is not None and kept.damage == ""


def _samplers(run: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if sampler.__name__ in words and str(run / "telemetry") in words:
            found.append(process)
    return found
