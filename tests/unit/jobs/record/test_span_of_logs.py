"""What `record` says of how much of this job its logs will hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_log import TinyLog

from prismdbg.jobs.record import log_retention
from prismdbg.jobs.record.ledger import Ledger
from prismdbg.jobs.record.record import RecordRequest, prepare
from prismdbg.jobs.record.supervisor import Policy, Supervisor

SEGMENT_BYTES = 1 << 16
HOUR_NS = 3600 * 10**9


SECOND_NS = 10**9


@pytest.fixture
def watched(tmp_path: Path) -> tuple[Supervisor, list[TinyLog], list[str]]:
    """Two ranks; there is room for 256 segments."""
    policy = Policy(log_bytes=256 * SEGMENT_BYTES)
    run = prepare(RecordRequest(output=tmp_path / "run", command=(sys.executable, "-c", ""), policy=policy))
    said: list[str] = []
    with subprocess.Popen([sys.executable, "-c", ""]) as job:
        supervisor = Supervisor(run, policy, job, said.append)
    return supervisor, [TinyLog(run.ranks / str(rank), rank, segment_bytes=SEGMENT_BYTES) for rank in (0, 1)], said


def look(supervisor: Supervisor, *, ended: bool = False) -> None:
    """As the first one, and as one of a second later."""
    for _ in range(2):
        supervisor._saw_peaks_ns = 0
        supervisor._look(ended)


def fill(log: TinyLog) -> None:
    """In an hour."""
    log.issue(0, 1)
    log.records += HOUR_NS - 1  # a record a nanosecond: `TinyLog`
    log.issue(0, 2)
    log.next_segment()


FULL = "at its present pace, the log of a rank contains the last 10.7 days of the job (--log-bytes 16.0 MiB)"


def test_the_hours_that_a_log_holds_are_said_once_when_its_pace_is_known(
    watched: tuple[Supervisor, list[TinyLog], list[str]],
) -> None:
    supervisor, logs, said = watched
    for log in logs:
        fill(log)
    look(supervisor)
    assert said == [FULL]


@pytest.mark.parametrize(
    ("count", "pace_ns", "estimate"),
    [(499, SECOND_NS // 200, ""), (500, SECOND_NS // 200, "10.9 minutes"), (2, 60 * SECOND_NS, "91.0 days")],
)
def test_before_a_segment_is_full_they_are_estimated(
    watched: tuple[Supervisor, list[TinyLog], list[str]], count: int, pace_ns: int, estimate: str
) -> None:
    """From the first 500 collectives, or those of a minute; each takes 128 bytes here."""
    supervisor, logs, said = watched
    for number in range(count):
        logs[1].issue(0, number + 1, time_ns=number * pace_ns)
    look(supervisor)
    assert said == (
        [
            f"estimate: at the pace of its first collectives, the log of a rank will contain the last {estimate} "
            "of the job (--log-bytes 16.0 MiB)"
        ]
        if estimate
        else []
    )


def test_an_estimate_that_was_right_is_not_said_again(watched: tuple[Supervisor, list[TinyLog], list[str]]) -> None:
    supervisor, (log, _), said = watched
    for number in range(300):
        log.issue(0, number + 1, time_ns=number * 13 * SECOND_NS)
    look(supervisor)
    log.next_segment()
    look(supervisor)
    assert len(said) == 1 and said[0].startswith("estimate: ")


def test_an_estimate_that_was_far_off_is_corrected(watched: tuple[Supervisor, list[TinyLog], list[str]]) -> None:
    supervisor, (log, _), said = watched
    for number in range(2):
        log.issue(0, number + 1, time_ns=number * 60 * SECOND_NS)
    look(supervisor)
    log.records = HOUR_NS
    log.issue(0, 3)
    log.next_segment()
    look(supervisor)
    assert len(said) == 2 and said[0].startswith("estimate: ") and said[1].startswith("at its present pace, ")


@pytest.mark.parametrize(("off", "is_corrected"), [(0.47, True), (0.53, False), (1.9, False), (2.1, True)])
def test_an_estimate_is_corrected_beyond_a_factor_of_two(
    off: float, is_corrected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_retention, "span_estimated_s", lambda folder, log_bytes: 5 * 3600.0)
    monkeypatch.setattr(log_retention, "span_kept_s", lambda folder, log_bytes: off * 5 * 3600.0)
    run = prepare(RecordRequest(output=tmp_path / "run", command=(sys.executable, "-c", ""), policy=Policy()))
    said: list[str] = []
    retention = log_retention.LogRetention(
        run, 1 << 24, Ledger(tmp_path / "supervisor.json", 1, 3, said.append), said.append
    )
    retention.estimate_span([run.ranks / "0"])
    retention.shorten(run.ranks / "0")
    assert [text.partition(":")[0] for text in said[:1]] == ["estimate"] and len(said) == 1 + is_corrected


def test_of_a_job_that_has_ended_none_is_made(watched: tuple[Supervisor, list[TinyLog], list[str]]) -> None:
    supervisor, (log, _), said = watched
    for number in range(600):
        log.issue(0, number + 1)
    supervisor._look(True)
    assert said == []
