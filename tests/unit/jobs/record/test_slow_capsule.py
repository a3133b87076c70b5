"""A capsule that takes long to make: who waits is judged at the time of the events, and a job that is told to end
meanwhile has no further incident."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.errors import CapsuleError
from prismdbg.jobs.record import supervisor as supervisor_module
from prismdbg.jobs.record.incidents import Wanted
from prismdbg.jobs.record.record import RecordRequest, prepare
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.storage.run_folder import RunFolder

SECOND_NS = 1_000_000_000
TRIGGERS = {"nan": "", "hang": "5s"}


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
