"""What `record` says of how much of this job its logs will hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tiny_log import TinyLog

from prismdbg.jobs.record.record import RecordRequest, prepare
from prismdbg.jobs.record.supervisor import Policy, Supervisor

SEGMENT_BYTES = 1 << 16
HOUR_NS = 3600 * 10**9


def test_the_hours_that_a_log_holds_are_said_once_when_its_pace_is_known(tmp_path: Path) -> None:
    """Of two ranks: an hour fills a segment, and there is room for 256 of them."""
    policy = Policy(log_bytes=256 * SEGMENT_BYTES)
    run = prepare(RecordRequest(output=tmp_path / "run", command=(sys.executable, "-c", ""), policy=policy))
    said: list[str] = []
    with subprocess.Popen([sys.executable, "-c", ""]) as job:
        supervisor = Supervisor(run, policy, job, said.append)
    logs = [TinyLog(run.ranks / str(rank), rank, segment_bytes=SEGMENT_BYTES) for rank in (0, 1)]
    supervisor._folders = [log.folder for log in logs]
    for log in logs:
        log.issue(0, 1)
        log.records += HOUR_NS - 1  # a record a nanosecond: `TinyLog`
        log.issue(0, 2)
    for _ in range(2):
        supervisor._new_events()
        supervisor._keep_logs_short()
        assert said == []
    for log in logs:
        log.next_segment()
    for _ in range(2):
        supervisor._new_events()
        supervisor._keep_logs_short()
    assert said == [
        "at its present pace, the log of a rank contains the last 10.7 days of the job (--log-bytes 16.0 MiB)"
    ]
