"""The images of `--checkpoint-every`: when the supervisor takes one, and what is kept of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event as Flag
from threading import Timer
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tiny_log import TinyLog
from waiting import wait_for

from prismdbg.capsule.log.batch import Batch
from prismdbg.capsule.log.events import Event, Note
from prismdbg.capsule.manifest import Incident, IncidentKind, Origin
from prismdbg.checkpoint import choice
from prismdbg.checkpoint.engine import DumpReport
from prismdbg.errors import CheckpointError, CheckpointTooSlow, FacilityError
from prismdbg.jobs.capture import costs
from prismdbg.jobs.capture.assemble import Ingredients
from prismdbg.jobs.capture.capture import PATIENT, Patience, Taken
from prismdbg.jobs.record import checkpoints, freeze
from prismdbg.jobs.record.checkpoints import KEPT, Checkpoint, list_checkpoints
from prismdbg.jobs.record.deaths import Death
from prismdbg.jobs.record.hangs import HangWatch
from prismdbg.jobs.record.incidents import Wanted
from prismdbg.jobs.record.supervisor import Policy, Supervisor
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.log.summary import summarize
from prismdbg.model.collective import Group
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import NotWaitedFor
from tests.unit.logs import lone_collective

MOMENTS = [Moment(4, 2), Moment(8, 2), Moment(8, 2), Moment(12, 2)]


class Agent:
    """Of a rank that only hears from where on it must keep its payloads."""

    asked: list[tuple[str, dict[str, Any]]] = []

    def __init__(self, _: Path, *, given_up: object) -> None: ...

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ask(self, verb: str, *, given_up: object, **arguments: Any) -> dict[str, Any]:
        self.asked.append((verb, arguments))
        return {}


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Moment]]:
    """The moments at which the next images are taken; each holds its number."""
    moments = list(MOMENTS)
    taken = iter(range(len(moments)))

    def take_image(_folder: Path, images: Path, _say: object, _patience: Patience, *, given_up: object) -> Taken:
        number = next(taken)
        images.mkdir(parents=True)
        (images / "pages-1.img").write_text(str(number))
        report = DumpReport(images=images, images_bytes=1, frozen_ns=1, pages_bytes=1)
        return Taken(
            images=images, moment=moments[number], past_records=10 * moments[number].step,
            in_flight=(), report=report, paused_ns=1,
        )  # fmt: skip

    monkeypatch.setattr(checkpoints, "take_image", take_image)
    monkeypatch.setattr(checkpoints, "agent_of", Agent)
    monkeypatch.setattr(checkpoints, "_require_room", lambda *_: None)
    Agent.asked.clear()
    yield moments


def test_a_second_one_at_the_same_moment_takes_the_firsts_place(rank: list[Moment], tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    folder = run.ranks / "0"
    made = [checkpoints.take(run, folder, print) for _ in MOMENTS[:3]]
    assert [str(one.moment) for one in made] == ["4.2", "8.2", "8.2"]
    kept = list_checkpoints(run, folder)
    assert [one.moment for one in kept] == [Moment(4, 2), Moment(8, 2)], "the one before is not dropped for it"
    assert (kept[1].images / "pages-1.img").read_text() == "2"
    assert {path.name for path in (run.checkpoints / "0").iterdir()} == {"4.2", "8.2"}, "nothing half-made"
    checkpoints.take(run, folder, print)
    assert [one.moment for one in list_checkpoints(run, folder)] == [Moment(8, 2), Moment(12, 2)]
    assert len(list_checkpoints(run, folder)) == KEPT
    assert Agent.asked[-1] == ("keep_from", {"step": 8})


EVERY_STEP = [Moment(4, 2), Moment(5, 2), Moment(6, 2), Moment(7, 2)]
FROM_A_BEGIN = [Moment(4), Moment(5), Moment(6), Moment(7)]


@pytest.mark.parametrize(
    ("moments", "kept"),
    [(EVERY_STEP, ["5.2", "6.2", "7.2"]), (FROM_A_BEGIN, ["6.0", "7.0"]), (MOMENTS, ["8.2", "12.2"])],
)
def test_an_incident_in_the_step_of_the_newest_has_a_whole_step_before_it(
    rank: list[Moment], tmp_path: Path, moments: list[Moment], kept: list[str]
) -> None:
    rank[:] = moments
    run = RunFolder(tmp_path)
    for _ in moments:
        checkpoints.take(run, run.ranks / "0", print)
    left = list_checkpoints(run, run.ranks / "0")
    assert [str(one.moment) for one in left] == kept
    assert any(one.leads_to(moments[-1].step) for one in left)
    assert Agent.asked[-1] == ("keep_from", {"step": left[0].moment.step}), "payloads, too"


def test_payloads_are_kept_from_the_start_until_a_checkpoint_leads_to_a_whole_step(
    rank: list[Moment], tmp_path: Path
) -> None:
    rank[:] = [Moment(4, 2), Moment(5, 2), Moment(6, 2)]
    run = RunFolder(tmp_path)
    asked = []
    for _ in rank:
        checkpoints.take(run, run.ranks / "0", print)
        asked.append(Agent.asked[-1][1]["step"])
    assert asked == [0, 0, 4]


def with_two_checkpoints(rank: list[Moment], path: Path, *, in_segments: bool = False) -> tuple[RunFolder, Path]:
    """A run and the log of its rank: 11 steps of 10 collectives, with checkpoints at 4.2 and 8.2."""
    rank[:] = [Moment(4, 2), Moment(8, 2)]
    run = RunFolder(path)
    folder = run.ranks / "0"
    for _ in rank:
        checkpoints.take(run, folder, print)
    log = TinyLog(folder)
    for step in range(11):
        for collective in range(1, 11):
            log.complete(log.issue(step, collective))
        if in_segments:
            log.next_segment()
            summarize(folder)
    return run, folder


def a_nan_at(moment: str) -> Wanted:
    return Wanted(folder="0", incident=Incident(kind=IncidentKind.NAN, text="a NaN", moment=Moment.parse(moment)))


@pytest.mark.parametrize("in_segments", [False, True])
@pytest.mark.parametrize(
    ("incident", "origin"),
    [("9.1", "4.2"), ("10.1", "8.2"), ("8.3", "4.2"), ("5.1", "4.2"), ("4.3", "4.2"), ("3.10", None), ("2.1", None)],
)
def test_a_capsule_begins_a_whole_step_before_its_incident(
    rank: list[Moment], tmp_path: Path, incident: str, origin: str | None, in_segments: bool
) -> None:
    """Of two checkpoints the newer, unless the incident is in its step or the next."""
    run, folder = with_two_checkpoints(rank, tmp_path, in_segments=in_segments)
    wanted = a_nan_at(incident)
    found, leads = freeze._newest_before(checkpoints.list_checkpoints(run, folder), wanted, folder)
    assert (None if found is None else str(found.moment)) == origin
    assert leads is (incident in ("9.1", "10.1", "8.3"))


@pytest.mark.parametrize(
    ("incident", "keeps_start", "origin"),
    [
        ("9.1", True, "4.2"),
        ("5.1", True, "start"),
        ("5.1", False, "4.2"),
        ("3.10", True, "start"),
    ],
)
def test_a_whole_step_from_the_start_goes_before_a_checkpoint_without_one(
    rank: list[Moment],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    incident: str,
    keeps_start: bool,
    origin: str,
) -> None:
    run, _ = with_two_checkpoints(rank, tmp_path)
    monkeypatch.setattr(freeze, "kept_from_the_start", lambda folder: keeps_start)
    monkeypatch.setattr(freeze, "assemble", lambda parts: parts)
    parts = cast(Ingredients, freeze.freeze(run, a_nan_at(incident)))
    assert (parts.origin, parts.past_records > 0) == (
        (Origin.START, False) if origin == "start" else (Origin.IMAGE, True)
    )
    if parts.images is not None:
        assert parts.images.parent.name == origin


def test_a_rank_that_never_came_has_a_whole_step_before_its_own_last(rank: list[Moment], tmp_path: Path) -> None:
    rank[:] = [Moment(4, 2), Moment(8)]
    run = RunFolder(tmp_path)
    folder = run.ranks / "0"
    for _ in rank:
        checkpoints.take(run, folder, print)
    log = TinyLog(folder)
    for step in range(9):
        for collective in range(1, 11):
            log.issue(step, collective)
    wanted = Wanted(folder="0", incident=Incident(kind=IncidentKind.HANG, text="a hang", moment=Moment(9, 1)))
    found, leads = freeze._newest_before(checkpoints.list_checkpoints(run, folder), wanted, folder)
    assert found is not None and found.moment == Moment(4, 2) and leads


def test_none_is_begun_that_the_disk_might_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job writes to it, too, and the rank stands still while an image is written."""
    run = RunFolder(tmp_path)
    folder = run.ranks / "0"
    folder.mkdir(parents=True)
    write_json(folder / "rank.json", {"pid": os.getpid()})
    begun: list[Path] = []
    monkeypatch.setattr(checkpoints, "socket_of", lambda _: tmp_path / "socket")
    monkeypatch.setattr(checkpoints, "take_image", lambda folder, *_, **__: begun.append(folder))
    monkeypatch.setattr(costs, "require_room", lambda _: 0)
    monkeypatch.setattr(costs, "image_bytes", lambda _: 100 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000 << 20))
    with pytest.raises(FacilityError, match="has 1000 MiB free, of which 1024 MiB must stay free") as refused:
        checkpoints.take(run, folder, print)
    assert "--checkpoint-every" in refused.value.hint
    assert not begun


class Watched:
    """A supervisor of two ranks that have come past a checkpoint's step."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, hang: str) -> None:
        self.taken: list[tuple[str, Patience]] = []
        self.answers: Flag | None = None
        self.fails: Callable[[int], Exception] | None = None
        monkeypatch.setattr(checkpoints, "take", self._take)
        job = subprocess.Popen([sys.executable, "-c", ""])
        job.wait()
        self.supervisor = Supervisor(
            RunFolder(folder), Policy(triggers={"hang": hang}, checkpoint_every=5), job, lambda _: None
        )
        self.come_to(5)
        self.supervisor._processes = {name: SimpleNamespace(is_alive=lambda: True) for name in "01"}  # type: ignore[dict-item]

    def come_to(self, step: int) -> None:
        for name in "01":
            self.supervisor._checkpoints.came_to(name, step)

    def _take(
        self, _run: RunFolder, folder: Path, _say: object, patience: Patience, given_up: Callable[[], bool]
    ) -> Checkpoint:
        self.taken.append((folder.name, patience))
        if self.fails is not None:
            raise self.fails(len(self.taken))
        if (answers := self.answers) is not None:
            wait_for(lambda: given_up() or answers.is_set(), 30, "an answer, or something else to do")
            if not answers.is_set():
                raise NotWaitedFor("nobody waits any more")
        return Checkpoint(path=folder, moment=Moment(5), past_records=1, in_flight=(), paused_ns=1, images_bytes=1)

    def look(self) -> list[str]:
        self.supervisor._take_checkpoints()
        return [name for name, _ in self.taken]


def test_one_at_a_look_and_no_longer_than_a_hang_may_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path, monkeypatch, "10s")
    assert [watched.look() for _ in range(3)] == [["0"], ["0", "1"], ["0", "1"]]
    assert {patience for _, patience in watched.taken} == {Patience(park_s=5.0, drain_s=2.5)}
    assert HangWatch("").patience == HangWatch("10m").patience == PATIENT


def test_a_rank_has_its_turn_where_images_take_longer_than_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path, monkeypatch, "10s")
    for step in (10, 15, 20):
        watched.look()
        watched.come_to(step)
    assert watched.look() == ["0", "1", "0", "1"]


def test_none_while_somebody_waits_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path, monkeypatch, "10s")
    with monkeypatch.context() as patch:
        patch.setattr(HangWatch, "suspects", lambda _self, now_ns: now_ns <= time.monotonic_ns())
        assert watched.look() == []
    assert watched.look() == ["0"]


class Log:
    """What of a rank's log is read next."""

    segment = 0

    def __init__(self, *events: Event) -> None:
        self._events = list(events)

    def poll(self) -> list[Event]:
        events, self._events = self._events, []
        return events


def _read(watched: Watched, *events: Event) -> None:
    watched.supervisor._readers["0"] = Log(*events)  # type: ignore[assignment]
    watched.supervisor._folders = [Path("0")]


def _raises(watched: Watched) -> None:
    _read(watched, Note("incident", 1, {"type": "ValueError", "text": ""}))


def _sends_nan(watched: Watched) -> None:
    _read(watched, Batch(notable=[lone_collective(sent_nonfinite=True)], nonfinite=True))


def _waits_too_long(watched: Watched) -> None:
    waiting = lone_collective(time_created_ns=time.monotonic_ns() - 6 * 10**9)
    _read(watched, Group(name=waiting.group, ranks=(0, 1)), Batch(open=[waiting], last=waiting))


def _dies(watched: Watched) -> None:
    watched.supervisor._deaths._dead.append(Death(name="1", wall_ns=1, signal=9))


def _is_asked_for_capsules(watched: Watched) -> None:
    watched.supervisor._asked_by_signal = True


def _is_told_to_end(watched: Watched) -> None:
    watched.supervisor._told_to_end.set()


def _ends(watched: Watched) -> None:
    watched.supervisor._ended.set()


HAPPENS = [_raises, _sends_nan, _waits_too_long, _dies, _is_asked_for_capsules, _is_told_to_end, _ends]


@pytest.mark.parametrize("happens", HAPPENS)
def test_a_rank_that_does_not_answer_is_not_waited_for_once_something_happens(
    happens: Callable[[Watched], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path, monkeypatch, "10s")
    watched.supervisor._incidents.triggers = {"nan": "", "exception": ""}
    watched.answers = Flag()
    later = Timer(0.1, happens, (watched,))
    later.start()
    watched.look()
    later.join()
    assert [name for name, _ in watched.taken] == ["0"]
    assert watched.supervisor._has_else_to_do()
    assert watched.look() == ["0"]


def test_a_rank_that_was_given_up_has_its_turn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path, monkeypatch, "10s")
    watched.answers = Flag()
    _is_asked_for_capsules(watched)
    assert watched.look() == []
    watched.supervisor._asked_by_signal = False
    later = Timer(0.1, _is_asked_for_capsules, (watched,))
    later.start()
    assert watched.look() == ["0"]
    watched.supervisor._asked_by_signal = False
    watched.answers.set()
    assert watched.look() == ["0", "0"]
    assert watched.look() == ["0", "0", "1"]


def _full(number: int) -> FacilityError:
    return FacilityError(f"the checkpoint takes {number} MiB, and the disk has {7 * number} MiB free", hint="free some")


def test_what_fails_is_said_once_and_tried_more_and_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path, monkeypatch, "10s")
    monkeypatch.setattr(checkpoints, "why_never", lambda _: None)
    watched.fails = _full
    for step in range(5, 200, 5):
        watched.come_to(step)
        watched.look()
        watched.look()
    assert Counter(name for name, _ in watched.taken) == {"0": 5, "1": 5}, "at steps 5, 15, 35, 75, 155"
    problems = read_json(tmp_path / "supervisor.json")["problems"]
    assert [text.partition(":")[0] for text in problems] == [f"no checkpoint of rank {r} at step 5" for r in (0, 1)]
    watched.fails, tries = None, len(watched.taken)
    for step in (315, 320):
        watched.come_to(step)
        watched.look()
        watched.look()
    assert len(watched.taken) == tries + 4, "as before, once there was one"


def _too_slow(_: str) -> Exception:
    return CheckpointTooSlow("it was not complete within 90 s")


@pytest.mark.parametrize(
    ("fails", "never", "said"),
    [
        (_full, CheckpointError("it has an NCCL communicator"), "NCCL communicator"),
        (_too_slow, None, "not complete within 90 s; no further one is taken"),  # the next would hold the rank as long
    ],
)
def test_what_can_never_be_done_is_not_tried_again(
    fails: Any, never: CheckpointError | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path, monkeypatch, "10s")
    monkeypatch.setattr(checkpoints, "why_never", lambda _: never)
    watched.fails = fails
    for step in (5, 5000, 100_000):
        watched.come_to(step)
        watched.look()
        watched.look()
    assert sorted(name for name, _ in watched.taken) == ["0", "1"]
    problems = read_json(tmp_path / "supervisor.json")["problems"]
    assert len(problems) == 2 and all(said in text for text in problems)


def test_a_machine_without_an_engine_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = TinyLog(tmp_path / "ranks" / "0").folder
    monkeypatch.setattr(choice, "find", lambda: None)
    assert checkpoints.why_never(folder) is None

    def none() -> None:
        raise FacilityError("no CRIU on this machine")

    monkeypatch.setattr(choice, "find", none)
    assert str(checkpoints.why_never(folder)) == "no CRIU on this machine"
