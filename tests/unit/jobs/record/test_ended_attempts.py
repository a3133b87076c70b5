"""A job that is restarted for weeks: what its ended attempts keep does not fill the disk."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from capsules import make_capsule
from tiny_log import TinyLog

from prismdbg.capsule.log.reader import event_segments
from prismdbg.capsule.partial import partial_folder
from prismdbg.jobs.record import ended_attempts
from prismdbg.jobs.record.incidents import parse_triggers
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.jobs.storage.run_report import rank_states
from prismdbg.log.columns import read_whole
from prismdbg.log.summary import summarized

SEGMENT_BYTES = 1 << 13
STEPS = 6
NO_SUCH_PID = 2**22 + 1
BEGAN_NS = TinyLog.WALL_OFFSET_NS + 1  # all of them wrote later
KEPT = {"states/{}/4/tensors.safetensors", "checkpoints/{}/4.0/images/core.img", "ranks/{}/payload.00009.seg"}


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_attempts, "END_BYTES", 2 * SEGMENT_BYTES)


def attempt(
    run: RunFolder,
    number: int,
    *,
    alive: bool = False,
    rank: int = 0,
    job: str = "none",
    restarted: bool = True,
    agent: int = 0,
    worker: int = 0,
    code: int = 1,
    started_ns: int = BEGAN_NS,
) -> str:
    """Each step in a segment of its own. It ended with that exit code, unless it is alive. agent, worker: when these
    processes of torchrun began; 0: not known."""
    name = f"{rank}.{number}" if number else str(rank)
    log = TinyLog(run.ranks / name, rank, segment_bytes=SEGMENT_BYTES)
    for step in range(STEPS):
        log.step(step)
        log.complete(log.issue(step, 1))
        log.next_segment()
    if not alive:
        if code:
            log.note("incident", text="RuntimeError: on purpose", moment=f"{STEPS - 1}.1", exception="RuntimeError")
        log.note("exit", code=code)
    started = {"TORCHELASTIC_RUN_ID": job, "TORCHELASTIC_RESTART_COUNT": str(number if restarted else 0)}
    about = {
        "rank": rank,
        "started_ns": started_ns,
        "pid": os.getpid() if alive else NO_SUCH_PID,
        "environment": started,
    }
    about |= {"agent": [7, agent], "worker": [8, worker]} if agent else {}
    write_json(log.folder / "rank.json", about)
    for path in KEPT:
        file = run.path / path.format(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
    return name


def kept_of(run: RunFolder, name: str) -> set[str]:
    return {path for path in KEPT if (run.path / path.format(name)).exists()}


def shown(run: RunFolder) -> list[tuple[str, str, str, int, int | None]]:
    return [(one.name, one.state, one.moment, one.collectives, one.steps) for one in rank_states(run)]


@pytest.fixture
def job() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        yield process
        process.kill()


def supervisor(run: RunFolder, job: subprocess.Popen[bytes], *, log_bytes: int = 1 << 20) -> Supervisor:
    run.ranks.mkdir(parents=True, exist_ok=True)
    return Supervisor(run, Policy(triggers=parse_triggers("none"), log_bytes=log_bytes), job, lambda _: None)


def look(watch: Supervisor, times: int = 8) -> None:
    for _ in range(times):
        watch._look(ended=False)


def test_only_the_newest_two_stay_as_they_are(tmp_path: Path, job: subprocess.Popen[bytes]) -> None:
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    for number in range(4):
        attempt(run, number, alive=number == 3)
    before = shown(run)
    capsule = make_capsule(run.capsules / "exception-rank0")
    held = sorted(path for path in capsule.path.rglob("*"))
    look(watch)
    assert [kept_of(run, name) for name in ("0", "0.1", "0.2", "0.3")] == [set(), set(), KEPT, KEPT]
    for name in ("0", "0.1"):
        folder = run.ranks / name
        assert summarized(folder, event_segments(folder)) == STEPS - 1
        assert [number for number, _ in event_segments(folder)] == [0, STEPS - 1, STEPS]
        log = read_whole(folder)
        assert [note.kind for note in log.notes] == ["incident", "exit"]
        assert [len(log), log.issued] == [1, STEPS]
    assert len(event_segments(run.ranks / "0.2")) == STEPS + 1
    assert shown(run) == before, "by `status`"
    assert sorted(path for path in capsule.path.rglob("*")) == held


@pytest.mark.parametrize("job_of", [lambda _: "none", lambda number: f"job{number}", lambda _: ""])
def test_jobs_of_one_script_are_no_restarts(
    job_of: Callable[[int], str], tmp_path: Path, job: subprocess.Popen[bytes]
) -> None:
    """Stages one after the other, or an evaluation beside the training: their ranks take the folders as they come."""
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    names = [attempt(run, number, alive=number == 3, job=job_of(number), restarted=False) for number in range(4)]
    look(watch)
    assert [kept_of(run, name) for name in names] == [KEPT] * 4


def test_restarts_that_are_not_counted_on_their_node_are_restarts(tmp_path: Path, job: subprocess.Popen[bytes]) -> None:
    """torchrun counts them on the node where a rank failed, and gives the others the count that they had."""
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    names = [
        attempt(run, number, alive=number == 3, restarted=False, agent=1, worker=2 + number) for number in range(4)
    ]
    look(watch)
    assert [kept_of(run, name) for name in names] == [set(), set(), KEPT, KEPT]


@pytest.mark.parametrize(("agent_of", "worker_of"), [(lambda n: 1 + n, lambda n: 2 + n), (lambda _: 1, lambda _: 2)])
def test_stages_of_a_script_are_no_restarts_of_torchrun(
    agent_of: Callable[[int], int],
    worker_of: Callable[[int], int],
    tmp_path: Path,
    job: subprocess.Popen[bytes],
) -> None:
    """Each with a torchrun of its own, or all of them in a script that torchrun starts."""
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    names = [
        attempt(run, number, alive=number == 3, restarted=False, agent=agent_of(number), worker=worker_of(number))
        for number in range(4)
    ]
    look(watch)
    assert [kept_of(run, name) for name in names] == [KEPT] * 4


@pytest.mark.parametrize(("job_of", "code"), [(lambda _: "none", 0), (lambda number: f"job{number}", 1)])
def test_launches_of_one_process_are_no_restarts(
    job_of: Callable[[int], str], code: int, tmp_path: Path, job: subprocess.Popen[bytes]
) -> None:
    """torch's `elastic_launch` in a loop, also where each of them fails."""
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    names = [
        attempt(run, number, job=job_of(number), restarted=False, agent=1, worker=2 + number, code=code)
        for number in range(4)
    ]
    look(watch)
    assert [kept_of(run, name) for name in names] == [KEPT] * 4


def test_restarts_end_with_an_attempt_that_ends_well(tmp_path: Path, job: subprocess.Popen[bytes]) -> None:
    """What the same process launches then is another training."""
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    codes = (1, 1, 0, 1, 1, 0)
    names = [
        attempt(run, number, restarted=False, agent=1, worker=2 + number, code=code)
        for number, code in enumerate(codes)
    ]
    look(watch)
    assert [kept_of(run, name) for name in names] == [set(), KEPT, KEPT, set(), KEPT, KEPT]


@pytest.fixture
def restarts_of_what_ended_well(tmp_path: Path) -> list[str]:
    """It had finished, or saves and exits with 0 when torchrun sends SIGTERM. A later launch counts from 0."""
    run = RunFolder(tmp_path)
    names = [attempt(run, number, agent=1, worker=2 + number, code=0) for number in range(4)]
    return names + [attempt(run, number, restarted=False, agent=1, worker=2 + number, code=0) for number in range(4, 7)]


def test_a_worker_that_ends_well_is_restarted_when_another_one_fails(
    restarts_of_what_ended_well: list[str], tmp_path: Path, job: subprocess.Popen[bytes]
) -> None:
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    for number in range(4):
        attempt(run, number, rank=1, agent=1, worker=12 + number)
    look(watch)
    assert [kept_of(run, name) for name in restarts_of_what_ended_well] == [set(), set(), *[KEPT] * 5]


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"code": 0},
        {"started_ns": 2 * BEGAN_NS},  # of the next training
        {"agent": 2},
        {"alive": True},
    ],
)
def test_a_training_that_ends_well_is_not_restarted_by_the_next_one(
    other: dict[str, Any], tmp_path: Path, job: subprocess.Popen[bytes]
) -> None:
    """torch's `elastic_launch` in a loop: the next one fails before it communicates, and is restarted."""
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    names = [attempt(run, 0, agent=1, worker=2, code=0)]
    names += [attempt(run, number, agent=1, worker=2 + number) for number in (1, 2, 3)]
    if other:
        attempt(run, 0, rank=1, **{"agent": 1, "worker": 12, **other})
    look(watch)
    assert [kept_of(run, name) for name in names] == [KEPT, set(), KEPT, KEPT]


def test_a_training_that_ends_well_is_not_restarted_by_one_that_had_failed(
    tmp_path: Path, job: subprocess.Popen[bytes]
) -> None:
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    attempt(run, 0, rank=1, agent=1, worker=1)  # of the training before
    later_ns = 2 * BEGAN_NS
    name = attempt(run, 0, agent=1, worker=2, code=0, started_ns=later_ns)
    for number in (1, 2):
        attempt(run, number, agent=1, worker=2 + number, started_ns=later_ns)
    look(watch)
    assert kept_of(run, name) == KEPT


def test_restarts_that_a_torchrun_below_torchrun_counts(tmp_path: Path, job: subprocess.Popen[bytes]) -> None:
    """Its ranks have the agent and the worker of the outer one."""
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    names = [attempt(run, number, alive=number == 3, agent=1, worker=2) for number in range(4)]
    look(watch)
    assert [kept_of(run, name) for name in names] == [set(), set(), KEPT, KEPT]


def test_one_that_lives_or_cannot_be_seen_stays(tmp_path: Path, job: subprocess.Popen[bytes]) -> None:
    """As of two jobs side by side, or in a container."""
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    attempt(run, 0, alive=True)
    elsewhere = attempt(run, 1)
    write_json(run.ranks / elsewhere / "rank.json", {"rank": 0, "pid": 1, "boot_id": "of another machine"})
    for number in (2, 3):
        attempt(run, number)
    look(watch)
    assert [kept_of(run, name) for name in ("0", "0.1")] == [KEPT, KEPT]


def test_what_a_capture_in_progress_needs_stays_until_it_is_done(tmp_path: Path, job: subprocess.Popen[bytes]) -> None:
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    for number in range(3):
        attempt(run, number)
    with partial_folder(run.path / "images") as partial:
        (partial / "needs.json").write_text(json.dumps({"rank": "0", "from_record": 5}))
        look(watch)
        assert kept_of(run, "0") == KEPT and len(event_segments(run.ranks / "0")) == STEPS + 1
    look(watch)
    assert not kept_of(run, "0")


def test_nothing_goes_while_something_is_decided(
    tmp_path: Path, job: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    for number in range(3):
        attempt(run, number)
    with monkeypatch.context() as patch:
        patch.setattr(watch._nodes, "has_to_decide", True)
        look(watch)
        assert kept_of(run, "0") == KEPT
    look(watch)
    assert not kept_of(run, "0")


def test_nothing_goes_where_nothing_of_a_log_does(tmp_path: Path, job: subprocess.Popen[bytes]) -> None:
    """With `--window all` each attempt can be replayed from its start."""
    run = RunFolder(tmp_path)
    watch = supervisor(run, job, log_bytes=0)
    for number in range(4):
        attempt(run, number)
    look(watch)
    assert all(kept_of(run, folder.name) == KEPT for folder in run.rank_folders())


def test_what_cannot_be_reduced_is_said_once_and_the_others_are(
    tmp_path: Path, job: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path)
    watch = supervisor(run, job)
    for number in range(4):
        attempt(run, number)
    tried = list[str]()

    def no_space(folder: Path) -> None:
        tried.append(folder.name)
        if folder.name == "0":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ended_attempts, "summarize", no_space)
    look(watch)
    assert tried == ["0", "0.1"] and not kept_of(run, "0.1")
    assert any("No space left on device" in text for text in read_json(run.supervisor_json)["problems"])
