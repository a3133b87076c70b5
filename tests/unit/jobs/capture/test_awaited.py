"""`capture --wait` and `--at`: until a rank runs, or is in a step."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tiny_log import TinyLog, write_training

from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import UsageError, WaitTimeout
from prismdbg.jobs.capture.awaited import Awaited


class Job:
    """One rank that runs, as this test's own process, and goes on while somebody waits for it."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.log: TinyLog | None = None
        self.said: list[str] = []
        self.step = 2

    def start(self) -> None:
        """The rank has done two steps."""
        folder = self.run / "ranks" / "0"
        self.log = write_training(folder, rank=0)
        ticks = round((psutil.Process().create_time() - psutil.boot_time()) * os.sysconf("SC_CLK_TCK"))
        self.describe(ticks)
        (self.run / "run.json").write_text(json.dumps({"command": ["python"], "started_wall_ns": 10**18}))

    def describe(self, started_ticks: int) -> None:
        rank = {"rank": 0, "world_size": 1, "pid": os.getpid(), "started_ticks": started_ticks}
        place = {"pid_namespace": Path("/proc/self/ns/pid").stat().st_ino, "hardware": {"node": platform.node()}}
        (self.run / "ranks" / "0" / "rank.json").write_text(json.dumps(rank | place))

    def goes_on(self, _: float = 0) -> None:
        if self.log is None:
            self.start()
            return
        self.step += 1
        self.log.complete(self.log.issue(self.step, 1))

    def stands(self, _: float = 0) -> None:
        """Nothing happens."""

    def wait(self, step: int, pause: Callable[[float], None], timeout_s: float = 60) -> None:
        Awaited(run=self.run, rank=0, step=step, timeout_s=timeout_s).wait(self.said.append, pause)


def test_a_job_that_has_not_started_is_waited_for(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.wait(0, job.goes_on)
    assert job.log is not None and job.step == 2
    assert job.said == ["waiting for rank 0: it has not started"]


def test_a_step_is_waited_for(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.start()
    job.wait(5, job.goes_on)
    assert job.step == 5
    assert job.said == ["waiting for step 5 of rank 0: at 2.2"]
    job.wait(4, job.goes_on)
    assert job.step == 5, "it is past it"


def test_who_waits_too_long_is_told_where_the_rank_is(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.start()
    with pytest.raises(WaitTimeout, match=r"waited 0 s for step 9 of rank 0: at 2\.2"):
        job.wait(9, job.stands, timeout_s=0)


def test_a_rank_that_has_ended_is_no_longer_waited_for(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.start()
    assert job.log is not None
    job.log.note("exit", code=0)
    job.describe(started_ticks=1)  # another process has its number
    with pytest.raises(UsageError, match=r"rank 0 has ended at 2\.2") as refused:
        job.wait(9, job.stands)
    assert "prismdbg debug" in refused.value.hint


def test_a_job_that_ended_without_the_rank(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.run.mkdir()
    (job.run / "run.json").write_text(json.dumps({"command": ["python"], "started_wall_ns": 10**18}))
    (job.run / "supervisor.json").write_text(json.dumps({"exit_code": 0, "ended_wall_ns": 10**18}))
    with pytest.raises(UsageError, match="the job has ended"):
        job.wait(0, job.stands)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--at", "9"], "waited 1e-06 s for step 9 of rank 0: at 2.2"),
        (["--rank", "1", "--wait"], "waited 1e-06 s for rank 1: it has not started"),
    ],
)
def test_the_command_waits(options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = Job(tmp_path / "run")
    job.start()
    given = ["--rank", "0", "--origin", "start", *options, "--timeout", "0.000001", "-o", str(tmp_path / "capsule")]
    assert main.run(["capture", str(job.run), *given]) == ExitCode.TIMEOUT
    assert said in capsys.readouterr().err
