"""State snapshots from before an incident: the supervisor holds them until the capsule is made, and no longer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture.capture import remove_leftovers
from prismdbg.jobs.record import supervisor as supervisor_module
from prismdbg.jobs.record.incidents import Wanted
from prismdbg.jobs.record.nodes.among_nodes import OnlyNode
from prismdbg.jobs.record.record import RecordRequest, prepare
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.settings.state_hold import LONGEST_S, HoldWatch, hold, hold_file, release, remove_abandoned_holds

HOLDS = """
import sys
from pathlib import Path
from prismdbg.settings.state_hold import hold, hold_file
hold(hold_file(Path(sys.argv[1]), sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""
SECOND_NS = 1_000_000_000
ELSEWHERE = '{"pid": 1, "started_ticks": 1, "boot_id": "another machine", "pid_namespace": 1}'


class Clock:
    now_s = 0.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return hold_file(tmp_path, "")


@pytest.fixture
def seen(file: Path, clock: Clock) -> HoldWatch:
    return HoldWatch(file, lambda: clock.now_s)


def test_it_is_on_until_it_is_released(file: Path, seen: HoldWatch) -> None:
    assert not seen.is_on()
    hold(file)
    assert seen.is_on()
    release(file)
    release(file)
    assert not seen.is_on() and not list(file.parent.iterdir())


def test_each_node_holds_its_own_ranks(tmp_path: Path) -> None:
    hold(hold_file(tmp_path, "n1"))
    assert [HoldWatch(hold_file(tmp_path, node)).is_on() for node in ("n1", "n2", "")] == [True, False, False]


@pytest.mark.parametrize("node", ["", "n1"])
@pytest.mark.parametrize("by", ["a rank", "the next capture"])
def test_a_hold_of_a_killed_supervisor_is_none_and_goes(tmp_path: Path, node: str, by: str) -> None:
    run = RunFolder(tmp_path)
    run.states.mkdir()
    file = hold_file(run.states, node)
    line = [sys.executable, "-c", HOLDS, str(run.states), node]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None and supervisor.stdout.readline() == "held\n"
        remove_leftovers(run)
        assert HoldWatch(file).is_on()
        supervisor.send_signal(signal.SIGKILL)
        supervisor.wait(30)
    if by == "a rank":
        assert not HoldWatch(file).is_on()
    else:
        remove_leftovers(run)
    assert not list(run.states.iterdir())


@pytest.mark.parametrize("told", [ELSEWHERE, "{}", "no JSON"], ids=["elsewhere", "empty", "damaged"])
def test_of_whom_a_rank_cannot_see_it_lasts_so_long_at_most(
    file: Path, seen: HoldWatch, clock: Clock, told: str
) -> None:
    file.write_text(told)
    assert seen.is_on()
    clock.now_s = LONGEST_S - 1
    assert seen.is_on()
    clock.now_s = LONGEST_S
    assert not seen.is_on()
    file.write_text(told)
    os.utime(file, ns=(1, 1))
    assert seen.is_on(), "it is another one"


class Watched:
    """A supervisor of two ranks that keep state snapshots. In step 0, rank 1 sends NaN, 1 s after the clock's begin."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        policy = Policy(triggers={"nan": "", "exception": ""})
        self.run = prepare(RecordRequest(output=folder, command=(sys.executable, "-c", ""), policy=policy))
        self.run.states.mkdir()
        self.job = subprocess.Popen([sys.executable, "-c", ""])
        self.supervisor = Supervisor(self.run, policy, self.job, lambda text: None)
        self.logs = [TinyLog(self.run.ranks / str(rank), rank) for rank in (0, 1)]
        self.while_captured: list[bool] = []
        self._rank = HoldWatch(hold_file(self.run.states, ""))
        monkeypatch.setattr(supervisor_module.time, "monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr(supervisor_module, "freeze", self._freeze)

    def _freeze(self, run: RunFolder, wanted: Wanted) -> None:
        self.while_captured.append(self.is_held)
        raise CapsuleError("nothing was kept")

    @property
    def is_held(self) -> bool:
        return self._rank.is_on()

    def sends_nan(self) -> None:
        for rank, log in enumerate(self.logs):
            log.group("0", (0, 1), "default_pg")
            sent = fmt.IssueFlag.SENT_NONFINITE if rank else 0
            log.complete(log.issue(0, 1, flags=fmt.IssueFlag.HAS_FINGERPRINT | sent))

    def look(self, at_s: float) -> bool:
        self.now_ns = int(at_s * SECOND_NS)
        self.supervisor._look(ended=False)
        return self.is_held


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    with monkeypatch.context() as patched:
        watched = Watched(tmp_path / "run", patched)
        yield watched
    watched.job.wait()


def test_it_is_held_from_when_an_incident_is_seen_until_it_is_captured(watched: Watched) -> None:
    assert not watched.look(0.8)
    watched.sends_nan()
    assert watched.look(1.0) and not watched.while_captured, "at once, long before it has settled"
    assert watched.look(1.8)
    watched.look(2.2)
    assert watched.while_captured == [True]
    assert not watched.look(2.4) and not list(watched.run.states.iterdir())


def test_it_is_held_while_nodes_decide_who_captures(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnlyNode, "has_to_decide", True)
    assert watched.look(1.0)
    monkeypatch.setattr(OnlyNode, "has_to_decide", False)
    assert not watched.look(1.2)


def test_it_is_held_while_what_needs_not_settle_is_captured(watched: Watched) -> None:
    """Another incident may follow meanwhile, and is seen late."""
    watched.supervisor._make_capsule(Wanted(folder="0", incident=Incident(kind=IncidentKind.LOST, text="killed")))
    assert watched.while_captured == [True]
    assert not watched.look(1.0)


def test_it_is_released_once_the_job_was_told_to_end(watched: Watched) -> None:
    """A job that ignores it goes on to take snapshots. What is raised from then on is no incident."""
    watched.sends_nan()
    assert watched.look(1.0)
    watched.supervisor._forward(signal.SIGTERM, None)
    watched.look(1.2)
    assert watched.while_captured == [True]
    watched.logs[0].note("incident", incident="exception", type="ValueError", text="", time_ns=int(1.3 * SECOND_NS))
    assert not watched.look(1.4)


def test_it_is_released_when_the_job_has_ended(watched: Watched) -> None:
    watched.sends_nan()
    assert watched.look(1.0)
    watched.supervisor._ended.set()
    watched.supervisor._follow(lambda: None)
    assert watched.while_captured == [True] and not list(watched.run.states.iterdir())


def test_where_no_rank_keeps_snapshots_nothing_is_written(watched: Watched) -> None:
    watched.run.states.rmdir()
    watched.sends_nan()
    assert not watched.look(1.0) and not watched.run.states.exists()
    watched.run.states.mkdir()
    assert watched.look(1.2), "a rank has registered its state since"


def test_a_hold_that_cannot_be_written_costs_no_incident(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    watched.sends_nan()
    watched.look(1.0)
    assert not watched.is_held and not list(watched.run.states.iterdir()), "nothing half is left"
    monkeypatch.undo()
    watched.look(2.2)
    assert watched.while_captured
    problems = watched.supervisor._ledger._state["problems"]
    assert [text for text in problems if text.startswith("state snapshots are not kept for an incident: ")]


def test_a_decision_that_never_comes_holds_logs_and_snapshots_for_a_bounded_time(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(supervisor_module.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(OnlyNode, "has_to_decide", True)
    assert watched.look(1.0) and watched.supervisor._may_need_the_past()
    now_s += LONGEST_S
    assert not watched.look(1.2) and not watched.supervisor._may_need_the_past()


def test_a_job_that_was_told_to_end_has_its_logs_shortened_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnlyNode, "has_to_decide", True)
    watched.look(1.0)
    assert watched.supervisor._may_need_the_past()
    watched.supervisor._forward(signal.SIGTERM, None)
    watched.look(1.2)
    assert not watched.supervisor._may_need_the_past()


@pytest.mark.parametrize("name", ["", ".new"])
def test_an_error_of_the_file_server_is_no_end_of_snapshots(
    file: Path, seen: HoldWatch, monkeypatch: pytest.MonkeyPatch, clock: Clock, name: str
) -> None:
    file.with_name(f"{file.name}{name}").write_text("{}")

    def stale(*_: object, **__: object) -> None:
        raise OSError(116, "Stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", stale)
        patched.setattr(Path, "read_text", stale)
        assert seen.is_on()
        clock.now_s = LONGEST_S
        assert not seen.is_on()
        remove_abandoned_holds(file.parent)


@pytest.mark.parametrize("by", ["its supervisor", "the next capture"])
def test_half_of_a_snapshot_goes_once_its_rank_has_ended(tmp_path: Path, by: str) -> None:
    """A rank that ends while it writes one does not wait for it."""
    run = RunFolder(tmp_path)
    half, whole, elsewhere = (run.states / name for name in ("0/.8.partial", "0/4", "1/.8.partial"))
    for folder in (half, whole, elsewhere):
        folder.mkdir(parents=True)
        (folder / "state.safetensors").write_text("some of it")
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as rank:
        for name, about in (("0", {}), ("1", {"hardware": {"node": "another"}})):
            (run.ranks / name).mkdir(parents=True)
            write_json(run.ranks / name / "rank.json", {"pid": rank.pid, **about})
        watch = Supervisor(run, Policy(), rank, lambda _: None)
        clear = (lambda: watch._look(ended=False)) if by == "its supervisor" else lambda: remove_leftovers(run)
        clear()
        assert half.exists()
        rank.kill()
        rank.wait(30)
        clear()
    assert not half.exists() and whole.exists()
    assert elsewhere.exists(), "nobody here knows whether its rank has ended"
