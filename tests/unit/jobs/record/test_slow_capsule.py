"""A capsule that takes long to make: who waits is judged at the time of the events, and a job that is told to end
meanwhile has no further incident."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.errors import CapsuleError
from prismdbg.jobs.record import supervisor as supervisor_module
from prismdbg.jobs.record.deaths import Death
from prismdbg.jobs.record.incidents import Wanted
from prismdbg.jobs.record.record import RecordRequest, prepare
from prismdbg.jobs.record.steady_clock import wall_ns
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.moment import Moment

SECOND_NS = 1_000_000_000
TRIGGERS = {"nan": "", "hang": "5s", "exception": "", "slow": "3"}


class Watched:
    """Two ranks: rank 0 waits since the clock's begin in a call, and rank 1, which has not come, has sent NaN."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        policy = Policy(triggers=TRIGGERS)
        self.run = prepare(RecordRequest(output=folder, command=(sys.executable, "-c", ""), policy=policy))
        self.job = subprocess.Popen([sys.executable, "-c", ""])
        self.supervisor = Supervisor(self.run, policy, self.job, lambda text: None)
        self.logs = [TinyLog(self.run.ranks / str(rank), rank) for rank in (0, 1)]
        for rank, log in enumerate(self.logs):
            log.group("0", (0, 1), "default_pg")
            sent = fmt.IssueFlag.SENT_NONFINITE if rank else 0
            log.complete(log.issue(0, 1, flags=fmt.IssueFlag.HAS_FINGERPRINT | sent))
        self.waits_in = self.logs[0].issue(0, 2)
        self.frozen: list[str] = []
        self.during: Callable[[], None] = lambda: None
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr(supervisor_module, "freeze", self._freeze)
        monkeypatch.setattr(supervisor_module, "has_past", lambda run, folder: True)

    def _freeze(self, run: RunFolder, wanted: Wanted) -> None:
        self.frozen.append(str(wanted.incident.kind))
        self.during()
        self.now_ns += 60 * SECOND_NS
        raise CapsuleError("nothing was kept")

    def raises(self, at_s: float) -> None:
        self.logs[0].note("incident", incident="exception", type="ValueError", text="", time_ns=int(at_s * SECOND_NS))

    def dies(self, at_s: float, number: int) -> None:
        self.now_ns = int(at_s * SECOND_NS)
        self.supervisor._deaths._dead.append(Death(name="0", wall_ns=wall_ns(), signal=number))
        self.supervisor._processes["0"] = SimpleNamespace(  # type: ignore[assignment]
            ended_by_itself=lambda: False,
            died_without_a_word=lambda: True,
            raised_in_collective=lambda: None,
            last_moment=lambda: Moment(0, 2),
            is_alive=lambda: False,
            pid=None,
        )

    def is_told_to_end(self, at_s: float, number: int = signal.SIGTERM) -> None:
        self.now_ns = int(at_s * SECOND_NS)
        self.supervisor._forward(number, None)

    def look(self, at_s: float, *, ended: bool = False) -> None:
        self.now_ns = int(at_s * SECOND_NS)
        self.supervisor._look(ended=ended)

    @property
    def incidents(self) -> list[str]:
        return [str(entry["kind"]) for entry in self.supervisor._ledger._state["incidents"]]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    with monkeypatch.context() as patched:
        watched = Watched(tmp_path / "run", patched)
        watched.look(1)
        yield watched
    watched.job.wait()


def test_who_waited_when_a_capsule_was_begun_does_not_hang_for_it(watched: Watched) -> None:
    def goes_on() -> None:
        watched.logs[1].complete(watched.logs[1].issue(0, 2))
        watched.logs[0].complete(watched.waits_in)

    watched.during = goes_on
    watched.look(2.5)
    assert watched.incidents == ["nan"] == watched.frozen
    watched.look(63)
    assert watched.incidents == ["nan"]


def test_who_still_waits_after_it_hangs(watched: Watched) -> None:
    watched.look(2.5)
    watched.look(63)
    assert watched.incidents == ["nan", "hang"]


def test_a_job_that_is_told_to_end_meanwhile_has_no_further_incident(watched: Watched) -> None:
    watched.during = lambda: watched.supervisor._forward(signal.SIGTERM, None)
    watched.look(20)  # both are due
    assert watched.incidents == ["nan"] == watched.frozen


def test_of_a_hang_no_second_rank_is_captured_once_the_job_is_told_to_end(watched: Watched) -> None:
    watched.look(2.5)
    watched.during = lambda: watched.supervisor._forward(signal.SIGTERM, None)
    watched.look(63)
    assert watched.frozen == ["nan", "hang"]


@pytest.mark.parametrize("ended", [False, True])
def test_a_nan_that_lasts_when_the_job_is_told_to_end_is_still_captured(watched: Watched, ended: bool) -> None:
    """Somebody sees `loss nan`, and presses Ctrl-C; once only, and nothing else is. ended: the job was faster."""
    watched.supervisor._forward(signal.SIGINT, None)
    watched.look(1.1, ended=ended)
    watched.look(70)
    assert watched.incidents == ["nan"] == watched.frozen


def test_an_exception_just_before_the_job_is_told_to_end_is_captured(watched: Watched) -> None:
    watched.raises(1.6)
    watched.is_told_to_end(2.0)
    watched.look(2.1)
    watched.look(70)
    assert watched.incidents == ["exception", "nan"] == watched.frozen


def test_a_death_just_before_the_job_is_told_to_end_is_captured(watched: Watched) -> None:
    """Rank 1 raised for it, and that is told of no more."""
    watched.dies(1.6, signal.SIGKILL)
    watched.raises(1.7)
    watched.is_told_to_end(2.0)
    watched.look(2.1)
    watched.look(70)
    assert watched.incidents == ["lost", "nan"] == watched.frozen


def test_what_a_rank_raises_or_dies_of_when_it_is_told_to_end_is_no_incident(watched: Watched) -> None:
    watched.is_told_to_end(2.0)
    watched.raises(2.05)
    watched.dies(2.06, signal.SIGABRT)
    watched.look(2.1)
    watched.look(70)
    assert watched.incidents == ["nan"] == watched.frozen


def test_a_death_of_the_end_hides_no_exception_before_it(watched: Watched) -> None:
    watched.raises(1.6)
    watched.is_told_to_end(2.0)
    watched.dies(2.06, signal.SIGTERM)
    watched.look(2.1)
    assert watched.incidents == ["exception", "nan"]


@pytest.mark.parametrize("how", ["exit", "signal"])
def test_a_terminal_that_tells_ranks_before_the_supervisor_is_no_cause(watched: Watched, how: str) -> None:
    if how == "exit":
        watched.logs[1].note("exit", code=130, time_ns=int(1.55 * SECOND_NS))
    else:
        watched.dies(1.55, signal.SIGINT)
    watched.raises(1.6)
    watched.is_told_to_end(2.0, signal.SIGINT)
    watched.look(2.1)
    assert watched.incidents == ["nan"]


def test_a_slow_step_just_before_the_job_is_told_to_end_is_captured(watched: Watched) -> None:
    for step in range(1, 11):  # 0.01 s each, but for the last one
        at_ns = SECOND_NS + step * SECOND_NS // 100 + (step == 10) * SECOND_NS // 2
        watched.logs[0].step(step, time_ns=at_ns)
    watched.is_told_to_end(2.0)
    watched.look(2.1)
    assert watched.incidents == ["slow", "nan"]
