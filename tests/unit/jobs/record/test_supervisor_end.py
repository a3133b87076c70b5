"""The supervisor's last moments: nobody is made to wait, and nobody is called dead who ended well."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import wait_for

from prismdbg.errors import CapsuleError
from prismdbg.jobs.record import file_system_timeout
from prismdbg.jobs.record import supervisor as supervisor_module
from prismdbg.jobs.record.deaths import Death
from prismdbg.jobs.record.record import RecordRequest, prepare
from prismdbg.jobs.record.steady_clock import monotonic_of, wall_ns
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.model.moment import Moment

ABORTED = "aborted (SIGABRT) by a crash in native code, or by a watchdog"
EXITED = ", and its log has no end record: os._exit, or an exit in native code"


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[tuple[Supervisor, list[str]]]:
    run = prepare(RecordRequest(output=tmp_path / "run", command=(sys.executable, "-c", ""), policy=Policy()))
    said: list[str] = []
    with subprocess.Popen([sys.executable, "-c", ""]) as job:
        yield Supervisor(run, Policy(), job, said.append), said


@pytest.fixture
def handlers_restored() -> Iterator[None]:
    numbers = (*supervisor_module.FORWARDED, signal.SIGUSR1, signal.SIGUSR2)
    handlers = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_signal_after_the_jobs_end_ends_the_wait(
    supervised: tuple[Supervisor, list[str]], monkeypatch: pytest.MonkeyPatch, handlers_restored: None
) -> None:
    supervisor, said = supervised

    def asked_to_end(thread: threading.Thread, folder: Path, still_waits: Callable[[], None]) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("it went on waiting")

    monkeypatch.setattr(supervisor_module, "why_unfinished", asked_to_end)
    assert supervisor.watch(lambda: None) == 0
    assert said and said[-1].startswith("interrupted: the last events of the job")


def test_that_the_job_was_told_to_end_is_known_while_a_capsule_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handlers_restored: None
) -> None:
    run = prepare(RecordRequest(output=tmp_path / "run", command=(sys.executable, "-c", ""), policy=Policy()))
    seen: list[dict[str, Any]] = []
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as job:
        supervisor = Supervisor(run, Policy(), job, lambda _: None)

        def busy(_ended: bool) -> None:
            if not seen:
                os.kill(os.getpid(), signal.SIGTERM)
                try:
                    wait_for(lambda: read_json(run.supervisor_json).get("interrupted"), 20, "the note")
                finally:
                    seen.append(read_json(run.supervisor_json))
                    job.kill()

        monkeypatch.setattr(supervisor, "_look", busy)
        assert supervisor.watch(lambda: None) == 128 + signal.SIGTERM
    assert seen[0]["interrupted"]["signal"] == signal.SIGTERM


def test_a_job_ends_before_what_is_captured_of_it(
    supervised: tuple[Supervisor, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handlers_restored: None
) -> None:
    supervisor, _ = supervised
    looked_ns: list[int] = []
    monkeypatch.setattr(supervisor, "_look", lambda ended: looked_ns.append(wall_ns()) if ended else None)
    assert supervisor.watch(lambda: None) == 0
    (last_ns,) = looked_ns
    assert 0 < read_json(RunFolder(tmp_path / "run").supervisor_json)["ended_wall_ns"] < last_ns


def test_a_run_that_is_removed_meanwhile_is_named_and_the_jobs_exit_code_is_kept(
    supervised: tuple[Supervisor, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, said = supervised

    def gone(run: RunFolder) -> list[Path]:
        raise CapsuleError(f"{run.path} is missing")

    monkeypatch.setattr(RunFolder, "rank_folders", gone)
    shutil.rmtree(tmp_path / "run")
    assert supervisor.watch(lambda: None) == 0
    assert any(text == f"{tmp_path / 'run'} was removed: nothing more is recorded" for text in said), said
    assert not any("supervisor failed" in text for text in said)


def test_a_run_that_cannot_be_reached_is_named_and_the_jobs_exit_code_is_kept(
    supervised: tuple[Supervisor, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server that was lost answers ENOTCONN to everything, `stat` of the folder too."""
    supervisor, said = supervised
    stat = os.stat

    def lost(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(str(tmp_path / "run")):
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN), str(path))
        return stat(path, *args, **options)

    monkeypatch.setattr(os, "stat", lost)
    assert supervisor.watch(lambda: None) == 0
    wanted = (
        f"{tmp_path / 'run'} cannot be reached: {os.strerror(errno.ENOTCONN)}; "
        "incidents are not detected until it is reachable again"
    )
    assert wanted in said, said


def test_a_rank_that_ended_with_code_0_was_not_killed(
    supervised: tuple[Supervisor, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log has no end where a file server stopped to answer."""
    supervisor, said = supervised

    class Silent:
        def died_without_a_word(self) -> bool:
            return True

    monkeypatch.setitem(supervisor._processes, "0", Silent())  # type: ignore[arg-type]
    assert supervisor._died(Death(name="0", wall_ns=1, signal=0, alive_wall_ns=1, code=0), is_first=True) == []
    assert said[-1] == "rank 0 ended with exit code 0, and its log has no end record"


@pytest.mark.parametrize(
    ("number", "code", "how"),
    [
        (signal.SIGKILL, 137, "died without an error message: killed by SIGKILL"),
        (
            signal.SIGABRT,
            134,
            f"died without an error message: {ABORTED}",
        ),
        (None, None, "died without an error message: killed from outside, or a crash in native code"),
        (0, 3, f"exited with exit code 3{EXITED}"),
    ],
)
def test_an_incident_tells_how_a_rank_died(
    number: int | None,
    code: int | None,
    how: str,
    supervised: tuple[Supervisor, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    supervisor, _ = supervised
    supervisor._incidents.triggers = {"exception": ""}
    process = SimpleNamespace(died_without_a_word=lambda: True, last_moment=lambda: Moment(3, 1))
    monkeypatch.setitem(supervisor._processes, "1", process)  # type: ignore[arg-type]
    (wanted,) = supervisor._died(Death(name="1", wall_ns=1, signal=number, code=code), is_first=True)
    assert wanted.incident.text == f"rank 1 {how}"


@pytest.mark.parametrize(
    ("deaths", "doubt"),
    [
        ([("0", 10, None), ("1", 20, None)], True),  # both were gone before one could look
        ([("0", 10, None)], False),
        ([("0", 10, signal.SIGKILL), ("1", 20, None)], False),  # a launcher asks, before it kills
    ],
)
def test_an_incident_does_not_claim_who_died_first_where_nobody_saw_it(
    deaths: list[tuple[str, int, int | None]],
    doubt: bool,
    supervised: tuple[Supervisor, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    supervisor, _ = supervised
    supervisor._incidents.triggers = {"exception": ""}
    process = SimpleNamespace(
        died_without_a_word=lambda: True,
        last_moment=lambda: Moment(3, 1),
        ended_by_itself=lambda: False,
        raised_in_collective=lambda: None,
    )
    died = tuple(Death(name=name, wall_ns=ns, signal=number) for name, ns, number in deaths)
    for death in died:
        monkeypatch.setitem(supervisor._processes, death.name, process)  # type: ignore[arg-type]
    monkeypatch.setattr(supervisor, "_deaths", SimpleNamespace(deaths=lambda: died, ends=dict))
    (wanted,) = supervisor._lost_ranks()
    assert wanted.folder == "0"
    assert wanted.incident.text.endswith("; another rank may have died before it") is doubt


@pytest.mark.parametrize("is_reported", [False, True])
def test_a_death_that_was_reported_is_no_part_of_the_jobs_end(
    is_reported: bool, supervised: tuple[Supervisor, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is told to end half a second after it; `why` goes by the same rule."""
    supervisor, _ = supervised
    told_ns = wall_ns()
    death = Death(name="1", wall_ns=told_ns - 500_000_000, signal=signal.SIGTERM)
    monkeypatch.setattr(supervisor, "_deaths", SimpleNamespace(deaths=lambda: (death,)))
    supervisor._interrupted = {"signal": signal.SIGTERM, "wall_ns": told_ns}
    if is_reported:
        supervisor._incidents.triggers = {"exception": ""}
        process = SimpleNamespace(died_without_a_word=lambda: True, last_moment=lambda: Moment(3, 1))
        monkeypatch.setitem(supervisor._processes, "1", process)  # type: ignore[arg-type]
        assert len(supervisor._died(death, is_first=True)) == 1
    since_ns = monotonic_of(told_ns) - supervisor._ends_since_ns()
    assert (since_ns < 100_000_000) is is_reported


def test_the_wait_for_what_is_written_last_is_said_once_and_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system_timeout, "SAID_AFTER_S", 0.01)
    monkeypatch.setattr(file_system_timeout, "LONGEST_S", 0.02)
    said, goes_on = list[str](), threading.Event()
    thread = threading.Thread(target=goes_on.wait, daemon=True)
    thread.start()
    assert "is not complete after" in file_system_timeout.why_unfinished(thread, tmp_path, lambda: said.append("still"))
    assert said == ["still"]
    goes_on.set()
    monkeypatch.setattr(file_system_timeout, "SAID_AFTER_S", 60.0)
    assert not file_system_timeout.why_unfinished(thread, tmp_path, lambda: said.append("again"))
    assert said == ["still"]


@pytest.mark.parametrize("started", [0, 1])
def test_a_job_whose_supervisor_gets_no_threads_ends_as_it_would(
    started: int, supervised: tuple[Supervisor, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many processes as the user may have."""
    supervisor, said = supervised
    start, left = threading.Thread.start, [None] * started

    def refused(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    handlers = {
        number: signal.getsignal(number) for number in (*supervisor_module.FORWARDED, signal.SIGUSR1, signal.SIGUSR2)
    }
    try:
        assert supervisor.watch(lambda: None) == 0
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert said == [
        "incidents of the job are not detected, and no capsule is created: can't start new thread; the job continues"
    ]


def test_a_job_that_takes_no_signal_from_us_is_still_waited_for(
    supervised: tuple[Supervisor, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that `sudo` starts: an exception in the handler would end the wait, and leave the job alone."""
    supervisor, said = supervised

    def refused(number: int) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(supervisor._job, "send_signal", refused)
    supervisor._forward(signal.SIGTERM, None)
    assert said == [f"SIGTERM cannot be passed on to the job: {os.strerror(errno.EPERM)}"]


class Undecided:
    """Nodes that agree on nothing, whatever the reason."""

    def __init__(self) -> None:
        self.has_to_decide, self.has_to_tell = True, False
        self.asked: list[str] = []

    def settle_at_the_end(self) -> None:
        self.asked.append("together")
        raise CapsuleError("node.json is damaged")

    def decide_alone(self) -> None:
        self.asked.append("alone")
        self.has_to_decide = False


def test_what_nodes_never_decide_holds_no_supervisor_at_its_end(
    supervised: tuple[Supervisor, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, _ = supervised
    nodes = Undecided()
    monkeypatch.setattr(supervisor, "_nodes", nodes)
    monkeypatch.setattr(supervisor_module, "POLL_S", 0.0)
    monkeypatch.setattr(supervisor_module, "MOST_LAST_LOOKS", 3)
    supervisor._decide_the_last()
    assert nodes.asked == ["together"] * 3 + ["alone"]


def test_others_are_told_of_what_was_captured_also_after_the_jobs_end(
    supervised: tuple[Supervisor, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder was full for a moment. Else they capture the same again once this supervisor is silent."""
    supervisor, _ = supervised
    nodes = Undecided()
    nodes.has_to_decide, nodes.has_to_tell = False, True

    def tells_at_last() -> None:
        nodes.asked.append("together")
        nodes.has_to_tell = len(nodes.asked) < 2

    monkeypatch.setattr(nodes, "settle_at_the_end", tells_at_last)
    monkeypatch.setattr(supervisor, "_nodes", nodes)
    monkeypatch.setattr(supervisor_module, "POLL_S", 0.0)
    supervisor._decide_the_last()
    assert nodes.asked == ["together"] * 2
