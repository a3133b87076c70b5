"""A capture that is requested from another node's supervisor by files: it is answered, refused, or given up in time."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from capsules import make_capsule
from waiting import wait_for

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.errors import CapsuleError, FacilityError, RankLost, UsageError, WaitTimeout
from prismdbg.jobs.capture import requests
from prismdbg.jobs.capture.capture import CaptureRequest
from prismdbg.jobs.capture.requests import RequestFolder, RequestJson, captured_elsewhere, is_elsewhere, requests_in
from prismdbg.jobs.record import request_answers
from prismdbg.jobs.record.request_answers import RequestAnswers
from prismdbg.jobs.storage.job_nodes import SILENT_S, NodeFolder
from prismdbg.jobs.storage.run_folder import RunFolder

ASKED: RequestJson = {"rank": 3, "window_steps": 1, "timeout_s": 60, "origin": "image"}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Rank 3 is of node n2, whose heart has just beaten."""
    run = RunFolder(tmp_path.resolve() / "run")
    (run.nodes / "n2").mkdir(parents=True)
    (run.nodes / "job.json").write_text('{"id": "x"}')
    (run.nodes / "n2" / "node.json").write_text("{}")
    (run.nodes / "n2.beat.json").write_text('{"beat": 1}')
    (run.ranks / "3").mkdir(parents=True)
    there = {"boot_id": "another machine", "hardware": {"node": platform.node()}}
    rank = {"rank": 3, "pid": os.getpid(), "node": "n2", "socket": "/nowhere", **there}
    (run.ranks / "3" / "rank.json").write_text(json.dumps(rank))
    return run


@contextmanager
def answering(run: RunFolder, *lines: str, **answer: object) -> Iterator[None]:
    """A supervisor that answers the first request."""

    def answer_it() -> None:
        (request,) = wait_for(lambda: requests_in(run), 30, "a request")
        assert request.request() == ASKED and request.is_open()
        request.report(list(lines))
        request.answer(**answer)

    thread = threading.Thread(target=answer_it)
    thread.start()
    try:
        yield
    finally:
        thread.join(30)


def test_a_capsule_comes_back_and_the_request_goes(run: RunFolder, tmp_path: Path) -> None:
    made = make_capsule(run.capsules / "request-rank3-x").path
    told: list[str] = []
    with answering(run, "checkpoint taken", capsule=str(made)):
        capsule = captured_elsewhere(run, run.ranks / "3", tmp_path / "mine", ASKED, told.append)
    assert capsule.path == tmp_path / "mine" and Capsule.open(tmp_path / "mine").manifest
    assert told == ["node n2: checkpoint taken"] and not made.exists() and requests_in(run) == []


def test_what_failed_there_fails_here(run: RunFolder, tmp_path: Path) -> None:
    with (
        answering(run, error="the rank holds a pipe", hint="close it", exit_code=3),
        pytest.raises(CapsuleError, match="node n2: the rank holds a pipe") as raised,
    ):
        captured_elsewhere(run, run.ranks / "3", tmp_path / "mine", ASKED, print)
    assert raised.value.hint == "close it" and requests_in(run) == []


def test_an_answer_leads_nowhere_else(run: RunFolder, tmp_path: Path) -> None:
    run.capsules.mkdir()
    other = make_capsule(tmp_path / "other").path
    with answering(run, capsule=str(other)), pytest.raises(CapsuleError, match="is not in"):
        captured_elsewhere(run, run.ranks / "3", tmp_path / "mine", ASKED, print)
    assert other.exists()


def test_a_supervisor_that_is_silent_is_named_at_once(run: RunFolder, tmp_path: Path) -> None:
    beat = run.nodes / "n2.beat.json"
    then = beat.stat().st_mtime - SILENT_S - 33
    os.utime(beat, (then, then))
    with pytest.raises(RankLost, match="no heartbeat for 43 s"):
        captured_elsewhere(run, run.ranks / "3", tmp_path / "mine", ASKED, print)


def test_a_part_of_the_job_that_has_ended_is_not_asked(run: RunFolder, tmp_path: Path) -> None:
    (run.nodes / "n2" / "supervisor.json").write_text('{"exit_code": 0}')
    with pytest.raises(RankLost, match="has ended"):
        captured_elsewhere(run, run.ranks / "3", tmp_path / "mine", ASKED, print)


def test_a_supervisor_that_does_not_begin_is_given_up(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "TAKEN_BOUND_S", 1.3)
    told: list[str] = []
    with pytest.raises(WaitTimeout, match="waited 1 s for the supervisor of node n2"):
        captured_elsewhere(run, run.ranks / "3", tmp_path / "mine", ASKED, told.append)
    assert told == ["rank 3 runs on node n2; waiting up to 1.3 s for its supervisor"] and requests_in(run) == []


def test_a_rank_of_no_node_is_here(run: RunFolder) -> None:
    assert is_elsewhere(run.ranks / "3")
    (run.ranks / "3" / "rank.json").write_text(json.dumps({"rank": 3, "pid": os.getpid(), "node": "n2"}))
    assert not is_elsewhere(run.ranks / "3"), "it can be seen"
    (run.ranks / "3" / "rank.json").write_text(json.dumps({"rank": 3, "pid": 1, "boot_id": "another"}))
    assert not is_elsewhere(run.ranks / "3"), "nobody could be asked"


def ask(run: RunFolder, **request: object) -> RequestFolder:
    folder = run.requests / f"{len(requests_in(run)):016x}"
    folder.mkdir(parents=True)
    (folder / "request.json").write_text(json.dumps({**ASKED, **request}))
    return RequestFolder(folder)


def test_only_the_supervisor_of_the_ranks_node_answers(run: RunFolder) -> None:
    request = ask(run)
    problems: list[str] = []
    RequestAnswers(run, NodeFolder(run.nodes / "n1"), problems.append).look()
    assert request.is_open() and not problems
    RequestAnswers(run, NodeFolder(run.nodes / "n2"), problems.append).look()
    answer = wait_for(request.answered, 30, "an answer")
    assert answer["exit_code"] == 4 and "another machine" in answer["error"], answer
    assert not request.is_open() and not problems and len(requests_in(run)) == 1, "it asks no one else"


class AtOnce(threading.Thread):
    def start(self) -> None:
        self.run()


def age(request: RequestFolder, seconds: float) -> None:
    then = request.path.stat().st_mtime - seconds
    os.utime(request.path, (then, then))


@pytest.mark.parametrize("left", ["answered", "begun", "open"])
def test_a_request_whose_command_was_killed_is_not_answered_by_the_next_start(
    left: str, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank would be parked for nobody. What is left of it goes once it is certain that nobody comes back."""
    monkeypatch.setattr(request_answers, "Thread", AtOnce)
    monkeypatch.setattr(request_answers, "LOOK_NS", 0)
    monkeypatch.setattr(request_answers, "AGAIN_NS", 0)
    captured: list[int] = []
    monkeypatch.setattr(request_answers, "capture", lambda asked, _say: captured.append(asked.rank))
    request = ask(run)
    if left == "answered":
        request.answer(error="rank 3 has ended", exit_code=5)
    elif left == "begun":
        request.report(["checkpoint taken"])
    else:
        age(request, requests.TAKEN_BOUND_S + 1)
    answers = RequestAnswers(run, NodeFolder(run.nodes / "n2"), print)
    answers.look()
    assert captured == [] and requests_in(run) == [request], "its command may still read it"
    age(request, request_answers.STALE_S)
    RequestAnswers(run, NodeFolder(run.nodes / "n1"), print).look()
    assert requests_in(run) == [request], "only its rank's supervisor removes it"
    answers.look()
    assert captured == [] and requests_in(run) == []


def test_a_request_is_answered_once(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_answers, "Thread", AtOnce)
    monkeypatch.setattr(request_answers, "LOOK_NS", 0)
    captured: list[int] = []

    def capture(asked: CaptureRequest, _say: object) -> SimpleNamespace:
        captured.append(asked.rank)
        return SimpleNamespace(path=asked.output)

    monkeypatch.setattr(request_answers, "capture", capture)
    request = ask(run)
    answers = RequestAnswers(run, NodeFolder(run.nodes / "n2"), print)
    for _ in range(3):
        answers.look()
    assert captured == [3] and "capsule" in request.answered()


def test_a_capsule_that_nobody_waits_for_goes(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in no ledger: nothing else would ever name it."""
    monkeypatch.setattr(request_answers, "Thread", AtOnce)
    monkeypatch.setattr(request_answers, "LOOK_NS", 0)

    def capture(asked: CaptureRequest, _say: object) -> Capsule:
        assert asked.given_up is not None and not asked.given_up()
        made = make_capsule(asked.output)
        shutil.rmtree(request.path)  # its command was told to end
        assert asked.given_up()
        return made

    monkeypatch.setattr(request_answers, "capture", capture)
    request, problems = ask(run), list[str]()
    RequestAnswers(run, NodeFolder(run.nodes / "n2"), problems.append).look()
    assert list(run.capsules.iterdir()) == []
    assert len(problems) == 1 and "the command that requested it has ended" in problems[0]


def test_a_capsule_whose_command_was_killed_is_named_when_its_request_goes(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays: the command may still copy it."""
    made, request, problems = make_capsule(run.capsules / "request-rank3-x").path, ask(run), list[str]()
    request.answer(capsule=str(made))
    age(request, request_answers.STALE_S + 1)
    RequestAnswers(run, NodeFolder(run.nodes / "n2"), problems.append).look()
    assert requests_in(run) == [] and made.exists()
    assert len(problems) == 1 and str(made) in problems[0]


def test_a_request_is_answered_once_its_rank_can_be_seen_to_be_of_this_node(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server's client may still remember that the rank's description was missing; or the rank moved here."""
    clock = SimpleNamespace(monotonic_ns=lambda: now_ns)
    now_ns = 10 * request_answers.AGAIN_NS
    monkeypatch.setattr(request_answers, "time", clock)
    monkeypatch.setattr(request_answers, "LOOK_NS", 0)
    monkeypatch.setattr(request_answers, "Thread", AtOnce)
    captured: list[int] = []
    monkeypatch.setattr(request_answers, "capture", lambda asked, _say: captured.append(asked.rank))
    described = run.ranks / "3" / "rank.json"
    text = described.read_text()
    described.unlink()
    request, answers = ask(run), RequestAnswers(run, NodeFolder(run.nodes / "n2"), print)
    answers.look()
    described.write_text(text)
    answers.look()
    assert captured == [3]
    shutil.rmtree(request.path)
    now_ns += request_answers.AGAIN_NS
    described.write_text(json.dumps({**json.loads(text), "node": "n1"}))
    ask(run)
    answers.look()
    described.write_text(text)
    answers.look()
    assert captured == [3]
    now_ns += request_answers.AGAIN_NS
    answers.look()
    assert captured == [3, 3]


@pytest.mark.parametrize("damage", [{"rank": -1}, {"rank": "3"}, {"timeout_s": 1 << 40}, {"rank": 99}])
def test_a_damaged_request_is_one_problem(run: RunFolder, damage: dict[str, object]) -> None:
    request = ask(run, **damage)
    problems: list[str] = []
    RequestAnswers(run, NodeFolder(run.nodes / "n2"), problems.append).look()
    assert len(problems) == 1 and request.path.name in problems[0] and request.is_open()


def test_a_request_that_cannot_be_reached_hides_no_other(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    stale, damaged = ask(run), ask(run, rank="3")
    read, problems = RequestFolder.request, list[str]()

    def unless_stale(request: RequestFolder) -> RequestJson:
        if request.path == stale.path:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return read(request)

    monkeypatch.setattr(RequestFolder, "request", unless_stale)
    RequestAnswers(run, NodeFolder(run.nodes / "n2"), problems.append).look()
    assert len(problems) == 1 and damaged.path.name in problems[0]


def test_errors_keep_their_exit_codes(run: RunFolder, tmp_path: Path) -> None:
    with answering(run, error="no", exit_code=2), pytest.raises(UsageError):
        captured_elsewhere(run, run.ranks / "3", tmp_path / "mine", ASKED, print)


def test_a_capsule_that_cannot_be_copied_here_is_not_lost_from_sight(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_capsule(run.capsules / "request-rank3-x").path

    def full(*_: object, **__: object) -> None:
        raise shutil.Error([("source", "target", "[Errno 28] No space left on device")])

    def elsewhere(*_: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(Path, "rename", elsewhere)
    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(FacilityError, match=r"mine cannot be written: .*No space left on device") as raised:
        requests._move(made, tmp_path / "mine")
    assert str(made) in raised.value.hint and made.is_dir() and not (tmp_path / "mine").exists()
