"""What the supervisor cannot read, or does wrong, of one rank costs no other rank its incident."""

from __future__ import annotations

import errno
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
from capsules import make_capsule
from tiny_log import TinyLog

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.follower import LogFollower
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture.capture import PATIENT, CaptureRequest, Say
from prismdbg.jobs.record import incidents, record, supervisor
from prismdbg.jobs.record.checkpoint_rounds import CheckpointRounds
from prismdbg.jobs.record.incidents import IsOver, parse_triggers
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.storage.ranks_alive import was_replaced
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json

STEPS = (
    "_find_folders",
    "_hold_snapshots",
    "_look_at_peaks",
    "_keep_logs_short",
    "_lost_ranks",
    "_look_for_hang",
)


class Captures:
    """Stands for `capture`: a capsule of the rank, at once."""

    def __init__(self) -> None:
        self.ranks: list[int] = []

    def __call__(self, request: CaptureRequest, _say: Say) -> Capsule:
        self.ranks.append(request.rank)
        return make_capsule(request.output)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Two ranks, of which nothing is kept, in one process that lives until it is told to end."""
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    for rank in ("0", "1"):
        folder = tmp_path / "ranks" / rank
        folder.mkdir(parents=True)
        write_json(folder / "rank.json", {"pid": process.pid})
    yield process
    process.kill()
    process.wait(10)


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Captures:
    found = Captures()
    monkeypatch.setattr(supervisor, "capture", found)
    monkeypatch.setattr(supervisor, "has_past", lambda *_: False)
    return found


@pytest.fixture
def watch(tmp_path: Path, job: subprocess.Popen[bytes]) -> Supervisor:
    return Supervisor(RunFolder(tmp_path), Policy(triggers=parse_triggers("exception,signal")), job, lambda _: None)


def problems(run: Path) -> list[str]:
    found = read_json(run / "supervisor.json").get("problems", [])
    return [str(text) for text in found]


def broken(*_: Any, **__: Any) -> Any:
    raise CapsuleError("broken on purpose")


@pytest.mark.parametrize("refused", ["{", '{"pid": "one"}', "{}"])
def test_a_rank_whose_description_is_refused_hides_no_other(
    refused: str, watch: Supervisor, captures: Captures, tmp_path: Path
) -> None:
    (tmp_path / "ranks" / "0" / "rank.json").write_text(refused)
    watch._look(ended=False)
    watch._on_signal(signal.SIGUSR1, None)
    watch._look(ended=False)
    assert captures.ranks == [1]
    assert len([text for text in problems(tmp_path) if text.startswith(f"{tmp_path}/ranks/0/rank.json")]) == 1


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_fails_keeps_no_other_from_being_taken(
    step: str, watch: Supervisor, captures: Captures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch._look(ended=False)
    monkeypatch.setattr(watch, step, broken)
    watch._saw_peaks_ns = 0
    watch._on_signal(signal.SIGUSR1, None)
    watch._look(ended=False)
    assert captures.ranks == [0, 1] and "broken on purpose" in problems(tmp_path)


@pytest.mark.parametrize("step", ["settle", "look"])
def test_what_other_nodes_wrote_keeps_no_step_from_being_taken(
    step: str, watch: Supervisor, captures: Captures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch._nodes, step, broken)
    watch._on_signal(signal.SIGUSR1, None)
    watch._look(ended=False)
    assert captures.ranks == [0, 1]


def test_a_rank_that_cannot_be_captured_hides_no_other(
    watch: Supervisor, captures: Captures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def past(_: RunFolder, folder: Path) -> bool:
        return bool(broken()) if folder.name == "0" else False

    monkeypatch.setattr(supervisor, "has_past", past)
    watch._on_signal(signal.SIGUSR1, None)
    watch._look(ended=False)
    assert captures.ranks == [1] and "broken on purpose" in problems(tmp_path)


def test_a_full_disk_is_named_for_each_rank(
    watch: Supervisor, captures: Captures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(request: CaptureRequest, _say: Say) -> Capsule:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(supervisor, "capture", full)
    watch._on_signal(signal.SIGUSR1, None)
    watch._look(ended=False)
    full_words = f"[Errno {errno.ENOSPC}] {os.strerror(errno.ENOSPC)}"
    assert problems(tmp_path)[-2:] == [f"rank {rank} could not be captured: {full_words}" for rank in (0, 1)]


@pytest.mark.parametrize("error", [OSError(errno.ESTALE, os.strerror(errno.ESTALE)), ValueError("not decoded")])
def test_the_log_of_one_rank_that_cannot_be_read_hides_no_event_of_another(
    error: Exception, watch: Supervisor, captures: Captures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader gives an event once: what was read of others at the same look would be lost."""
    log = TinyLog(tmp_path / "ranks" / "1")
    log.note("incident", incident="exception", type="ValueError", text="not today")
    poll = LogFollower.poll

    def stale(reader: LogFollower) -> Any:
        if reader.folder.name == "0":
            raise error
        return poll(reader)

    monkeypatch.setattr(LogFollower, "poll", stale)
    watch._on_signal(signal.SIGUSR1, None)
    watch._look(ended=False)
    assert watch._incidents.settling and captures.ranks == [0, 1]
    assert any(error.args[-1] in text for text in problems(tmp_path))


def test_other_nodes_are_told_that_an_exception_was_outlived(
    watch: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[IsOver] = []
    monkeypatch.setattr(watch._nodes, "note_over", told.append)
    monkeypatch.setattr(incidents, "SETTLE_NS", 0)
    log = TinyLog(tmp_path / "ranks" / "1")
    log.note("incident", incident="exception", type="ValueError", text="not today", time_ns=5)
    watch._look(ended=False)
    log.step(3, time_ns=7)
    watch._look(ended=False)
    watch._look(ended=False)
    assert told == [IsOver(attempt=0, kind=IncidentKind.EXCEPTION, time_ns=7)]


def test_other_nodes_are_told_that_a_rank_lost_its_peer_before_its_process_has_ended(
    watch: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it comes before the death of that peer on another node, which is the cause."""
    told: list[tuple[str, bool | None]] = []
    monkeypatch.setattr(watch._nodes, "share", lambda wanted, inside, _act: told.append((wanted.folder, inside)))
    monkeypatch.setattr(incidents, "SETTLE_NS", 0)
    log = TinyLog(tmp_path / "ranks" / "1", 1)
    log.group("0", (0, 1, 2), "default_pg")
    log.issue(3, 1)
    text = "[connection] Connection closed by peer"
    log.note("incident", incident="exception", type="RuntimeError", text=text, time_ns=1 << 40)
    watch._look(ended=False)
    watch._look(ended=False)
    assert told == [("1", True)]


def test_when_it_was_told_to_end_is_there_before_others_can_read_that_it_was(
    watch: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, bool]] = []

    def note_told(told_ns: int) -> None:
        told.append((told_ns, "interrupted" in read_json(tmp_path / "supervisor.json")))

    monkeypatch.setattr(watch._nodes, "note_told", note_told)
    watch._ledger.save()
    before_ns = time.monotonic_ns()
    watch._forward(signal.SIGTERM, None)
    watch._look(ended=False)
    ((told_ns, is_known),) = told
    assert before_ns <= told_ns <= time.monotonic_ns() and not is_known
    assert read_json(tmp_path / "supervisor.json")["interrupted"]["signal"] == signal.SIGTERM


def test_an_event_that_nobody_understands_hides_no_later_one(
    watch: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: list[str] = []

    def feed(name: str, event: object) -> None:
        fed.append(name)
        broken()

    monkeypatch.setattr(watch._nodes, "feed", feed)
    for rank in ("0", "1"):
        log = TinyLog(tmp_path / "ranks" / rank)
        log.note("begin", recorder="python")
    watch._look(ended=False)
    assert fed == ["0", "1"]


def test_a_hang_is_told_also_where_no_stack_can_be_taken(watch: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(supervisor, "take_stacks", refused)
    assert watch._take_stacks().ranks == {}


def test_a_later_attempt_that_cannot_be_read_hides_no_death(tmp_path: Path) -> None:
    for name, text in (("0", '{"pid": 3, "started_ticks": 5}'), ("0.1", "{"), ("0.2", '{"pid": 4}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank.json").write_text(text)
    assert not was_replaced(tmp_path / "0")
    (tmp_path / "0.2" / "rank.json").write_text('{"pid": 3, "started_ticks": 5}')
    assert was_replaced(tmp_path / "0")


def test_a_rank_without_a_process_has_no_turn_with_checkpoints(tmp_path: Path) -> None:
    """Its log is followed all the same, so its steps are known."""
    rounds = CheckpointRounds(RunFolder(tmp_path), 2, SimpleNamespace(), lambda _: None)  # type: ignore[arg-type]
    rounds.came_to("0", 4)
    rounds.take({}, PATIENT, 0)


def test_the_report_at_the_end_is_said_also_where_nodes_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(record, "node_states", broken)
    monkeypatch.setattr(record, "report", lambda *_, **__: ["the report"])
    record._finish(RunFolder(tmp_path), tmp_path, said.append)
    assert said == ["unclaimed traces cannot be removed: broken on purpose", "the report"]
