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
from prismdbg.jobs.capture.awaited import MOST_POLL_S, POLL_S, Awaited
from prismdbg.jobs.storage import run_report
from prismdbg.log.columns import LogColumns, read_whole


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


def test_only_the_awaited_rank_is_read_and_as_long_as_it_goes_on_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path / "run")
    job.start()
    for rank in range(1, 8):
        folder = job.run / "ranks" / str(rank)
        write_training(folder, rank=rank)
        (folder / "rank.json").write_text((job.run / "ranks" / "0" / "rank.json").read_text())
    read: list[str] = []
    pauses: list[float] = []

    def reads(folder: Path, newest_bytes: int | None = None) -> LogColumns:
        read.append(folder.name)
        return read_whole(folder, newest_bytes)

    def goes_on(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) % 2:  # else it computes
            job.goes_on()

    monkeypatch.setattr(run_report, "read_whole", reads)
    job.wait(40, goes_on)
    assert job.step == 40 and read == ["0", "0"]
    assert pauses[0] == POLL_S and pauses[-1] == MOST_POLL_S and pauses == sorted(pauses)


def test_a_rank_that_does_not_go_on_is_looked_at_again(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.start()
    deeds = [job.goes_on, job.goes_on, lambda: job.describe(started_ticks=1)]
    with pytest.raises(UsageError, match=r"rank 0 has ended at 4\.1"):
        job.wait(9, lambda _: deeds.pop(0)())


def test_a_rank_that_was_restarted_is_waited_for(tmp_path: Path) -> None:
    job = Job(tmp_path / "run")
    job.start()

    def restarts(_: float) -> None:
        again = job.run / "ranks" / "0.1"
        if not again.exists():
            job.log, job.step = TinyLog(again), 0
            job.log.group("0", (0, 1), "default_pg")
            (again / "rank.json").write_text((job.run / "ranks" / "0" / "rank.json").read_text())
        job.goes_on()

    job.wait(6, restarts)
    assert job.step == 6


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
