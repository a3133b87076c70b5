"""A capture that cannot be is refused before the job is touched, and says what works instead."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_log import TinyLog

from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import CheckpointError, FacilityError, PrismError, RankLost, UsageError, WaitTimeout
from prismdbg.jobs.capture import capture, costs
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.model.moment import Moment
from prismdbg.rank.recording_verbs import LONGEST_LEASE_S
from prismdbg.settings.rank_config import Mode, RankConfig

ALIVE = os.getpid()
NO_SUCH_PID = 2**22 + 1  # beyond what Linux gives


@pytest.fixture(autouse=True)
def nothing_is_asked_of_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that is spoken to would be the job, touched."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the rank was asked for something")

    monkeypatch.setattr(capture, "AgentClient", refuse)


@pytest.mark.parametrize(
    ("moment", "whole_steps", "until"),
    [(Moment(8), 1, 9), (Moment(8, 2), 1, 10), (Moment(8, 2), 3, 12), (Moment(8, 2), 0, 9)],
)
def test_a_step_that_is_under_way_is_no_whole_one(moment: Moment, whole_steps: int, until: int) -> None:
    assert capture.step_after(moment, whole_steps) == until


def run_folder(path: Path, **facts: Any) -> RunFolder:
    run = RunFolder(path / "run")
    log = TinyLog(run.ranks / "0")
    log.group("0", (0, 1), "default_pg")
    log.complete(log.issue(0, 1))  # without a payload
    described = {
        "pid": ALIVE,
        "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
        "hardware": {"node": platform.node()},
        "uid": os.getuid(),
        "socket": str(path / "0.sock"),
    }
    write_json(log.folder / "rank.json", described | facts)
    write_json(run.run_json, {})
    return run


def refused(run: RunFolder, capsys: pytest.CaptureFixture[str], code: ExitCode, *options: str) -> str:
    """What is said, and nothing is left."""
    output = run.path.parent / "capsule"
    before = sorted(run.path.rglob("*"))
    assert main.run(["capture", str(run.path), "--rank", "0", "-o", str(output), *options]) == code
    assert not output.exists() and sorted(run.path.rglob("*")) == before
    return capsys.readouterr().err


def test_a_window_has_no_meaning_from_the_start_of_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_folder(tmp_path)
    said = refused(run, capsys, ExitCode.USAGE, "--origin", "start", "--window", "3")
    assert "--window cannot be combined with --origin start" in said and "leave --window out" in said
    monkeypatch.setenv("PRISMDBG_CAPTURE_WINDOW", "3")  # a default for other origins
    said = refused(run, capsys, ExitCode.BAD_CAPSULE, "--origin", "start")
    assert "not all of the received data was kept" in said


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"hardware": {"node": "another"}}, ("rank 0 runs on node another", "run the capture there")),
        (
            {"pid_namespace": 1},
            ("rank 0 runs in another PID namespace than this command", "run the capture where the rank runs"),
        ),
    ],
)
def test_a_rank_out_of_reach(
    facts: dict[str, Any], words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(run_folder(tmp_path, **facts), capsys, ExitCode.LACKING)
    assert all(word in said for word in words)
    assert "record with --window all and capture with --origin start" in said


def test_a_rank_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path, uid=4711)
    monkeypatch.setattr(os, "getuid", lambda: 1000)  # root may
    said = refused(run, capsys, ExitCode.LACKING)
    assert "rank 0 runs as user 4711" in said and "run the capture as that user or as root" in said
    assert "--origin start" in said


@pytest.mark.parametrize("pid", [NO_SUCH_PID, ALIVE], ids=["ended", "alive"])
def test_from_the_start_without_what_it_received(pid: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(run_folder(tmp_path, pid=pid), capsys, ExitCode.BAD_CAPSULE, "--origin", "start")
    assert "cannot be replayed from the program's start: not all of the received data was kept" in said
    assert "record with --window all, or capture a checkpoint" in said


def test_a_rank_that_has_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(run_folder(tmp_path, pid=NO_SUCH_PID), capsys, ExitCode.RANK_LOST)
    assert "rank 0 has ended" in said and "prismdbg why RUN" in said


def test_a_rank_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path)
    assert main.run(["capture", str(run.path), "--rank", "3", "-o", str(tmp_path / "x")]) == ExitCode.USAGE
    assert "contains no data of rank 3" in capsys.readouterr().err


@pytest.mark.parametrize("incident", [None, Incident(kind=IncidentKind.NAN, text="a NaN")], ids=["by hand", "incident"])
def test_an_incident_leaves_room_on_the_disk_to_the_job(
    incident: Incident | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who captures by hand decides it."""
    run, parked = run_folder(tmp_path), list[Path]()
    config = RankConfig(mode=Mode.RECORD, socket_dir="", cache_dir="")

    def take_image(folder: Path, *_: object, **__: object) -> None:
        parked.append(folder)
        raise CheckpointError("that is enough", hint="")

    monkeypatch.setattr(costs, "image_bytes", lambda _: 2 << 30)
    monkeypatch.setattr(costs, "require_room", lambda _: 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=int(2.3 * (1 << 30))))
    monkeypatch.setattr(capture, "await_agent", lambda *_: None)
    monkeypatch.setattr(capture, "agent_of", lambda *_, **__: nullcontext(SimpleNamespace(ask=lambda *_, **__: {})))
    monkeypatch.setattr(capture, "take_image", take_image)
    monkeypatch.setattr(capture, "RankConfig", SimpleNamespace(load=lambda _: config))
    request = capture.CaptureRequest(run=run, rank=0, output=tmp_path / "c", incident=incident)
    said = "of which 1024 MiB must stay free" if incident else "that is enough"
    with pytest.raises(FacilityError, match=said):
        capture.capture(request, lambda _: None)
    assert len(parked) == (incident is None)


def test_a_name_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path)
    taken = tmp_path / "taken"
    taken.write_text("mine")
    assert main.run(["capture", str(run.path), "--rank", "0", "-o", str(taken)]) == ExitCode.USAGE
    assert taken.read_text() == "mine"


@pytest.mark.parametrize("is_late", [True, False])
def test_an_image_of_a_rank_that_its_lease_let_go_is_none(
    is_late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was dumped while it ran: its agent would not change over to a replay. A lease that ends while the rank is
    frozen harms nothing."""
    images = tmp_path / "images"
    answers = {
        "park": {},
        "status": {"parked": True, "in_flight": []},
        "close_log": {"step": 1, "collective": 2, "record_id": 3},
        "release": {"was_held": False},
    }
    asked: dict[str, object] = {}

    def ask(verb: str, **told: object) -> object:
        asked.update(told)
        return answers[verb]

    agent = SimpleNamespace(ask=ask, leave=lambda: None)
    cost = SimpleNamespace(unrestorable=(), images_bytes=1)

    def dump(*_: object, **__: object) -> Callable[[], object]:
        images.mkdir()
        return lambda: cost

    monkeypatch.setattr(capture, "LEASE_S", -1.0 if is_late else 120.0)
    monkeypatch.setattr(capture.choice, "find", lambda: SimpleNamespace(dump=dump))
    monkeypatch.setattr(capture, "AgentClient", lambda _: nullcontext(agent))
    monkeypatch.setattr(capture, "socket_of", lambda folder: folder)
    monkeypatch.setattr(capture, "alone_with_rank", lambda *_, **__: nullcontext())
    monkeypatch.setattr(capture, "read_json", lambda _: {"pid": ALIVE})
    if is_late:
        with pytest.raises(CheckpointError, match="took longer than the rank may be paused"):
            capture.take_image(tmp_path / "3", images, lambda _: None)
    else:
        assert capture.take_image(tmp_path / "3", images, lambda _: None).images == images
    assert images.exists() is not is_late and asked["lease_s"] == capture.LEASE_S


@pytest.mark.parametrize(("holds_bytes", "least_s"), [(0, 90.0), (100 << 30, 2000.0)])
def test_a_large_rank_has_longer_to_be_written(
    holds_bytes: int, least_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that is killed half-way can cost the rank its life, and a slow disk takes long for 100 GiB."""
    given: list[float] = []

    def dump(*_: object, timeout_s: float) -> None:
        given.append(timeout_s)
        raise CheckpointError("that is enough", hint="")

    answers = {"status": {"parked": True, "in_flight": []}, "close_log": {"step": 1, "collective": 2, "record_id": 3}}
    agent = SimpleNamespace(ask=lambda verb, **_: answers.get(verb, {}), leave=lambda: None)
    monkeypatch.setattr(capture, "image_bytes", lambda pid: holds_bytes)
    monkeypatch.setattr(capture.choice, "find", lambda: SimpleNamespace(dump=dump))
    monkeypatch.setattr(capture, "AgentClient", lambda _: nullcontext(agent))
    monkeypatch.setattr(capture, "socket_of", lambda folder: folder)
    monkeypatch.setattr(capture, "alone_with_rank", lambda *_, **__: nullcontext())
    monkeypatch.setattr(capture, "read_json", lambda _: {"pid": ALIVE})
    with pytest.raises(CheckpointError, match="that is enough"):
        capture.take_image(tmp_path / "3", tmp_path / "images", lambda _: None)
    assert least_s <= given[0] < least_s + 600


def test_a_rank_on_a_gpu_is_held_for_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state is moved to memory before it is dumped. What it asks for must be what a rank gives."""
    asked: dict[str, object] = {}

    def ask(verb: str, **told: object) -> object:
        asked.update(told)
        raise CheckpointError(f"{verb} is enough", hint="")

    monkeypatch.setattr(capture.choice, "find", lambda: None)
    monkeypatch.setattr(capture, "is_used", lambda pid: pid == ALIVE)
    monkeypatch.setattr(capture, "AgentClient", lambda _: nullcontext(SimpleNamespace(ask=ask)))
    monkeypatch.setattr(capture, "socket_of", lambda folder: folder)
    monkeypatch.setattr(capture, "alone_with_rank", lambda *_, **__: nullcontext())
    monkeypatch.setattr(capture, "read_json", lambda _: {"pid": ALIVE})
    with pytest.raises(CheckpointError, match="park is enough"):
        capture.take_image(tmp_path / "3", tmp_path / "images", lambda _: None)
    assert asked["lease_s"] == capture.GPU_LEASE_S <= LONGEST_LEASE_S


@pytest.mark.parametrize(
    ("unrestorable", "is_taken"), [([()], True), ([("a",), ()], True), ([("a",), ("a", "b")], False)]
)
def test_an_image_that_no_replay_could_restore_is_taken_once_more(
    unrestorable: list[tuple[str, ...]], is_taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one stays nowhere: the second attempt has its folder for itself."""
    taken = [SimpleNamespace(report=SimpleNamespace(unrestorable=left)) for left in unrestorable]
    given, said, images = iter(taken), list[str](), tmp_path / "images"

    def take(_engine: object, _folder: object, into: Path, *_: object) -> object:
        into.mkdir()
        return next(given)

    monkeypatch.setattr(capture.choice, "find", lambda: None)
    monkeypatch.setattr(capture, "_take_once", take)
    monkeypatch.setattr(capture, "socket_of", lambda folder: folder)
    monkeypatch.setattr(capture, "alone_with_rank", lambda *_, **__: nullcontext())
    if is_taken:
        assert capture.take_image(tmp_path / "3", images, said.append) is taken[-1]
    else:
        with pytest.raises(CheckpointError, match=r"cannot be checkpointed: it has files open .*: a, b"):
            capture.take_image(tmp_path / "3", images, said.append)
    assert images.exists() is is_taken and next(given, None) is None
    assert len(said) == len(taken) - 1 and all("a, which no replay can restore; taking another" in one for one in said)


ENDED = {"pid": NO_SUCH_PID}


def test_of_a_rank_that_has_ended_the_hint_is_what_still_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_folder(tmp_path, **ENDED)
    said = refused(run, capsys, ExitCode.RANK_LOST)
    assert "rank 0 has ended" in said and "prismdbg why RUN" in said and "--origin" not in said
    monkeypatch.setattr(capture, "usable_states", lambda *_: ["a snapshot"])  # a fake: its files are another test's
    assert "add --origin state" in refused(run, capsys, ExitCode.RANK_LOST)
    kept = RunFolder(tmp_path / "kept" / "run")
    run_folder(tmp_path / "kept", **ENDED)
    log = TinyLog(kept.ranks / "0")
    log.group("0", (0, 1), "default_pg")
    log.complete(log.issue(0, 1), payload=b"received")
    assert "add --origin start" in refused(kept, capsys, ExitCode.RANK_LOST)


@pytest.mark.parametrize("origin", ["start", "state"])
def test_what_no_replay_can_start_again_is_not_captured(
    origin: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = ["python", "/env/ray/_private/workers/default_worker.py"]
    run = run_folder(tmp_path, orig_argv=worker)
    said = refused(run, capsys, ExitCode.USAGE, "--origin", origin)
    assert "no replay can start rank 0 again: Ray started the rank" in said and "prismdbg open" in said


@pytest.mark.parametrize("error", [WaitTimeout, UsageError, RankLost])
def test_a_rank_that_does_not_take_its_window_back_fails_no_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[PrismError]
) -> None:
    """The capsule is complete by then, and the rank puts it back itself when the command is gone."""

    def busy(*_: object, **__: object) -> None:
        raise error("busy")

    monkeypatch.setattr(capture, "agent_of", busy)
    capture._window_back(tmp_path, RankConfig(mode=Mode.RECORD, socket_dir="", cache_dir=""), {})
