"""What dead ranks cost the supervisor of a job that goes on: nothing is read again of an attempt that is over."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_log import write_training

from prismdbg.jobs.record import supervisor as supervisor_module
from prismdbg.jobs.record.deaths import Death
from prismdbg.jobs.record.interruption import TOGETHER_NS
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.storage import ranks_alive
from prismdbg.jobs.storage.ranks_alive import RankProcess
from prismdbg.jobs.storage.run_folder import RunFolder, write_json

NO_PID = 1 << 22
RAISED, KILLED, DAMAGED = "raised", "killed", "damaged"


class Restarted:
    """A supervisor whose job is restarted again and again. The clock is set by hand."""

    def __init__(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        job = SimpleNamespace(pid=1)
        policy = Policy(triggers={"exception": ""})
        self.run = RunFolder(base)
        self.supervisor = Supervisor(self.run, policy, job, lambda _: None)  # type: ignore[arg-type]
        self.now_ns = 10**18
        self.deaths: list[Death] = []
        self.reads = 0
        deaths = SimpleNamespace(deaths=lambda: tuple(self.deaths), ends=dict)
        monkeypatch.setattr(self.supervisor, "_deaths", deaths)
        monkeypatch.setattr(supervisor_module, "wall_ns", lambda: self.now_ns)
        for module in (ranks_alive, supervisor_module):
            for name in ("read_whole", "was_cut", "was_replaced"):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, self._counted(getattr(module, name)))

    def _counted(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self.reads += 1
            return read(*arguments)

        return counted

    def begins(self, name: str, pid: int = NO_PID) -> Path:
        folder = self.run.ranks / name
        log = write_training(folder)
        write_json(folder / "rank.json", {"pid": pid})
        self.supervisor._processes[name] = RankProcess(folder)
        return log.path

    def ends(self, name: str, how: str, number: int | None = 0) -> None:
        segment = self.begins(name)
        if how == RAISED:
            write_training(segment.parent).note("incident", time_ns=1 << 62, incident="exception", type="ValueError")
        if how == DAMAGED:
            data = segment.read_bytes()
            segment.write_bytes(data[:200] + b"\xff" * 40 + data[240:])
        self.dies(name, number)

    def dies(self, name: str, number: int | None = 0) -> None:
        self.deaths.append(Death(name=name, wall_ns=self.now_ns, signal=number, code=1))

    def look(self) -> list[str]:
        self.reads = 0
        self.now_ns += 2 * TOGETHER_NS
        return [wanted.folder for wanted in self.supervisor._lost_ranks()]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Restarted:
    return Restarted(tmp_path, monkeypatch)


@pytest.mark.parametrize("how", [RAISED, KILLED, DAMAGED])
def test_an_attempt_that_is_over_is_read_once(how: str, job: Restarted) -> None:
    for rank in range(3):
        job.ends(f"{rank}", how, signal.SIGKILL if how == KILLED else 0)
    assert job.look() == (["0"] if how == KILLED else []) and job.reads
    assert job.look() == [] and job.reads == 0


@pytest.mark.parametrize("how", [RAISED, KILLED, DAMAGED])
def test_while_a_rank_of_it_lives_what_the_dead_ones_said_is_read_once(how: str, job: Restarted) -> None:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as living:
        try:
            job.begins("0", living.pid)
            job.ends("1", how, signal.SIGKILL if how == KILLED else 0)
            assert job.look() == (["1"] if how == KILLED else []) and job.reads
            assert job.look() == [] and job.reads == 0
        finally:
            living.kill()


def test_who_dies_after_the_others_seemed_to_be_over_is_looked_at(job: Restarted) -> None:
    """A rank that had not yet described itself."""
    job.ends("0", DAMAGED)
    assert job.look() == []
    job.ends("1", KILLED, signal.SIGKILL)
    assert job.look() == ["1"]


def test_only_attempts_that_are_not_over_are_compared(job: Restarted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison of each death with each other costs more with each restart."""
    compared: list[int] = []
    told_together = supervisor_module.told_together

    def counted(deaths: list[Death], *others: Any) -> frozenset[str]:
        compared.append(len(deaths))
        return told_together(deaths, *others)

    monkeypatch.setattr(supervisor_module, "told_together", counted)
    for attempt in range(4):
        for rank in range(3):
            job.ends(f"{rank}.{attempt}", RAISED, signal.SIGTERM)
        job.look()
    assert compared == [3, 3, 3, 3]
