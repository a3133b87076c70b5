"""Times that the supervisor notes are by the clock of the ranks' logs: somebody may have set the machine's clock after
the supervisor began and before the ranks of a later attempt did, and a machine may have been suspended since."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_log import TinyLog

from prismdbg.capsule.stacks import FROM_OUTSIDE, RankStacks
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.diagnosis.why import diagnose
from prismdbg.jobs.evidence import gather
from prismdbg.jobs.record import stacks, steady_clock
from prismdbg.jobs.record.deaths import Death
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json

SECOND_NS = 10**9
LOGS_OFFSET_NS = 10**18 - SECOND_NS  # of tiny logs
NO_SUCH_PID = 2**22 + 1  # beyond what Linux gives


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """The clock was set an hour forward when it had begun."""
    monkeypatch.setattr(steady_clock, "_OFFSET_NS", LOGS_OFFSET_NS - 3600 * SECOND_NS)
    (tmp_path / "run.json").write_text("{}")
    with subprocess.Popen([sys.executable, "-c", ""]) as job:
        yield Supervisor(RunFolder(tmp_path), Policy(), job, lambda _: None)


def log_of(run: Path, name: str, *, pid: int = NO_SUCH_PID, **about: object) -> TinyLog:
    """Of a rank that has issued collectives just now."""
    log = TinyLog(run / "ranks" / name, int(name.partition(".")[0]))
    log.group("0", range(3), "default_pg")
    begun_ns = time.monotonic_ns() - SECOND_NS
    for step in range(5):
        log.complete(log.issue(step, 1, seq=step, time_ns=begun_ns + step), ended_ns=begun_ns + step + 1)
    write_json(log.folder / "rank.json", {"pid": pid, "world_size": 3, **about})
    return log


def ended(watch: Supervisor, monkeypatch: pytest.MonkeyPatch, *deaths: Death) -> None:
    """The job ends now."""
    watch._find_folders(ended=True)
    watch._read_events(time.monotonic_ns())
    watch._find_processes()
    seen = SimpleNamespace(deaths=lambda: deaths, order=lambda: [one.name for one in deaths], ends=dict)
    monkeypatch.setattr(watch, "_deaths", seen)
    watch._ended_wall_ns = steady_clock.wall_ns()
    monkeypatch.setattr(watch, "_look", lambda _: None)
    watch._ended.set()
    watch._follow(lambda: None)


def test_stacks_have_the_time_of_the_logs_clock(
    watch: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that was suspended for eight hours: a hang did not last that long."""
    log_of(tmp_path, "0", pid=os.getpid())
    monkeypatch.setattr(stacks, "stacks_of", lambda _: RankStacks(rank=0, taken_by=FROM_OUTSIDE))
    watch._look(ended=False)
    before_ns = time.monotonic_ns()
    taken = watch._take_stacks()
    assert before_ns <= taken.taken_wall_ns - LOGS_OFFSET_NS <= time.monotonic_ns()


def test_stacks_of_ranks_without_a_log_have_the_supervisors_time(watch: Supervisor) -> None:
    before_ns = steady_clock.wall_ns()
    assert before_ns <= watch._take_stacks().taken_wall_ns <= steady_clock.wall_ns()


def test_who_raised_before_another_was_ended_is_the_cause_whoever_set_the_clock(
    watch: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look found both dead, so that the log of the rank that raised has to say that it was before."""
    logs = [log_of(tmp_path, f"{rank}.1") for rank in range(3)]
    raised_ns, dead_ns = time.monotonic_ns(), steady_clock.wall_ns() + SECOND_NS
    said = {"type": "ValueError", "text": "no", "traceback": ["ValueError: no\n"], "moment": "5.0"}
    logs[2].note("incident", incident="exception", time_ns=raised_ns, **said)
    alive_ns = dead_ns - 2 * SECOND_NS
    dead = [
        Death(name=f"{rank}.1", wall_ns=dead_ns, alive_wall_ns=alive_ns, signal=number, code=code)
        for rank, number, code in ((2, 0, 1), (0, signal.SIGTERM, 143), (1, signal.SIGTERM, 143))
    ]
    ended(watch, monkeypatch, *dead)

    (found,) = diagnose(gather(tmp_path)).verdicts

    assert (found.text, found.certainty) == ("rank 2 raised at 5.0: ValueError: no", Certainty.CERTAIN)


def test_the_end_and_what_ended_it_are_by_the_clock_of_the_latest_attempts_logs(
    watch: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("0", "0.1"):
        log_of(tmp_path, name)
    told_ns = time.monotonic_ns()
    watch._interrupted = {"signal": signal.SIGINT, "wall_ns": steady_clock.wall_ns()}
    never = Death(name="0.1", wall_ns=steady_clock.wall_ns(), signal=None)
    ended(watch, monkeypatch, never)
    report, now_ns = read_json(tmp_path / "supervisor.json"), time.monotonic_ns()

    assert told_ns <= report["interrupted"]["wall_ns"] - LOGS_OFFSET_NS <= now_ns
    assert told_ns <= report["ended_wall_ns"] - LOGS_OFFSET_NS <= now_ns
    (died,) = report["how_they_died"]
    assert told_ns <= died["wall_ns"] - LOGS_OFFSET_NS <= now_ns and died["alive_wall_ns"] == 0
    assert gather(tmp_path).interrupted


@pytest.mark.parametrize(
    "about",
    [{"boot_id": "another", "hardware": {"node": "another"}}, {"time_namespace": 7}],
    ids=["another machine", "another time namespace"],
)
@pytest.mark.parametrize("is_one_here", [False, True])
def test_a_log_by_another_clock_moves_no_time(
    watch: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_one_here: bool, about: dict[str, Any]
) -> None:
    """Its offset is that of a clock which began at another time, as of a rank that `srun` started on another node."""
    log_of(tmp_path, "0.1", **about)
    if is_one_here:
        log_of(tmp_path, "1")
    began_ns = steady_clock.wall_ns()
    ended(watch, monkeypatch)
    ended_ns = read_json(tmp_path / "supervisor.json")["ended_wall_ns"]
    ahead_ns = LOGS_OFFSET_NS - steady_clock._OFFSET_NS if is_one_here else 0
    assert began_ns <= ended_ns - ahead_ns <= steady_clock.wall_ns()
