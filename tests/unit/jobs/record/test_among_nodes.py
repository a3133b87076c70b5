"""One of several supervisors: whose ranks it follows, which incidents it captures, and of whom it hears nothing."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_log import TinyLog

from prismdbg.capsule.log.reader import read_log
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.diagnosis.stalls import Stall, Wait
from prismdbg.errors import CapsuleError
from prismdbg.jobs.record import decisions
from prismdbg.jobs.record.hangs import Delays
from prismdbg.jobs.record.incidents import IsOver, Wanted
from prismdbg.jobs.record.nodes import among_nodes, delays_elsewhere, heartbeat, publisher
from prismdbg.jobs.record.nodes.among_nodes import AmongNodes
from prismdbg.jobs.record.nodes.heartbeat import Heartbeat, NeighbourWatch, beat_of
from prismdbg.jobs.record.nodes.membership import Member
from prismdbg.jobs.record.nodes.publisher import Publisher
from prismdbg.jobs.record.nonfinite_watch import MOST_INCIDENTS, NO_MORE
from prismdbg.jobs.storage.job_nodes import NodeFolder, last_beat, node_states
from prismdbg.jobs.storage.local_logs import LocalFolder
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.jobs.storage.run_report import payload_bytes
from prismdbg.model.collective import Group
from prismdbg.model.moment import Moment
from prismdbg.settings.process_stat import start_ticks
from tests.unit.logs import lone_collective


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path)
    run.nodes.mkdir()
    (run.nodes / "job.json").write_text('{"id": "x"}')
    run.ranks.mkdir()
    return run


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(decisions, "SETTLE_S", 0.0)
    monkeypatch.setattr(heartbeat, "LOOK_NS", 0)
    yield


def node(run: RunFolder, name: str) -> NodeFolder:
    folder = NodeFolder(run.nodes / name)
    folder.path.mkdir()
    folder.about.write_text("{}")
    return folder


def supervisor(run: RunFolder, name: str) -> tuple[AmongNodes, list[str]]:
    folder, problems = node(run, name), list[str]()
    member = Member(run=run, node=folder, heart=Heartbeat(folder), made=False)
    return AmongNodes(member, problems.append), problems


def rank(run: RunFolder, name: str, node: str | None) -> None:
    (run.ranks / name).mkdir(exist_ok=True)
    if node is not None:
        (run.ranks / name / "rank.json").write_text(json.dumps({"rank": int(name[0]), "pid": 1, "node": node}))


def wanted(kind: IncidentKind, folder: str, moment: Moment, *, sent: bool = False) -> Wanted:
    return Wanted(folder=folder, incident=Incident(kind=kind, text="", moment=moment), sent=sent)


def test_it_follows_the_ranks_of_its_own_node(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = supervisor(run, "n1")
    for name, owner in (("0", "n1"), ("1", None), ("2", "n2"), ("3", "")):
        rank(run, name, owner)
    (run.ranks / "4").mkdir()
    (run.ranks / "4" / "rank.json").write_text("{")
    (run.ranks / "5").mkdir()
    (run.ranks / "5" / "rank.json").write_text('{"node": "n1", "pid": "one"}')
    assert [folder.name for folder in one.own(at_once=True)] == ["0", "5"], "the log of 5 can still be followed"
    rank(run, "1", "n1")
    assert [folder.name for folder in one.own(at_once=False)] == ["0", "5"], "it has looked just now"
    monkeypatch.setattr(among_nodes, "LOOK_S", -1.0)
    assert [folder.name for folder in one.own(at_once=False)] == ["0", "5", "1"]


def test_at_the_end_it_acts_alone_where_run_cannot_be_written_to_for_long(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the supervisor of a full folder would never end."""
    one, problems = supervisor(run, "n1")
    run.decisions.write_text("in the way")
    captured: list[str] = []
    one.share(wanted(IncidentKind.NAN, "3", Moment(5, 2)), None, lambda _: captured.append("nan"))
    one.settle()
    one.settle_at_the_end()
    assert one.has_to_decide and not captured and "cannot be written to" in problems[-1]
    monkeypatch.setattr(among_nodes, "LAST_TRIES_S", 0.0)
    one.settle()
    assert one.has_to_decide and not captured, "the job goes on, and the folder may come back"
    one.settle_at_the_end()
    assert not one.has_to_decide and captured == ["nan"]


@pytest.mark.parametrize(
    ("nearer", "farther"),
    [
        (wanted(IncidentKind.NAN, "3", Moment(5, 2), sent=True), wanted(IncidentKind.NAN, "0", Moment(5, 1))),
        (wanted(IncidentKind.NAN, "3", Moment(4, 9)), wanted(IncidentKind.NAN, "0", Moment(5, 1), sent=True)),
        (wanted(IncidentKind.LOST, "3", Moment(5, 2)), wanted(IncidentKind.EXCEPTION, "0", Moment(5, 2))),
        (wanted(IncidentKind.SLOW, "3", Moment(5)), wanted(IncidentKind.SLOW, "0", Moment(6))),
        (
            replace(wanted(IncidentKind.SLOW, "5", Moment(5)), waited_for=True),
            wanted(IncidentKind.SLOW, "0", Moment(5)),
        ),
    ],
)
def test_the_cause_is_captured_and_not_what_follows(nearer: Wanted, farther: Wanted, run: RunFolder) -> None:
    captured: list[str] = []
    (one, _), (other, _) = supervisor(run, "n1"), supervisor(run, "n2")
    one.share(farther, True, lambda _: captured.append("farther"))
    other.share(nearer, None, lambda _: captured.append("nearer"))
    for _ in range(2):
        one.settle()
        other.settle()
    assert captured == ["nearer"] and not one.has_to_decide and not other.has_to_decide


def beats(node: AmongNodes) -> None:
    node._heart.once()


def test_others_hear_which_ranks_are_busy_and_when_ranks_were_held(run: RunFolder) -> None:
    (one, _), (other, _) = supervisor(run, "n1"), supervisor(run, "n2")
    told = Delays(busy=frozenset({0}), held=((ns_ago(80), ns_ago(10)),))
    one.look({}, lambda: told)
    beats(one)
    heard = other.delays()
    ((begun_ns, ended_ns),) = heard.held
    assert heard.busy == {0} and not one.delays().busy, "its own ranks it sees itself"
    assert ended_ns - begun_ns == pytest.approx(70e9, rel=1e-3) and ns_ago(15) < ended_ns < ns_ago(9)


def test_others_hear_that_a_supervisor_takes_an_image_and_can_tell_nothing_else(run: RunFolder) -> None:
    (one, _), (other, _), (third, _) = (supervisor(run, name) for name in ("n1", "n2", "n3"))
    before_ns = time.monotonic_ns()
    with one.holding():
        begun_ns = time.monotonic_ns()
        beats(one)
    ((held_ns, _),) = other.delays().held
    beats(one)
    ended_ns = time.monotonic_ns()
    ((since_ns, until_ns),) = third.delays().held
    late_ns = time.monotonic_ns() - begun_ns  # when it was is how long ago that was, when it is read
    assert before_ns <= held_ns <= begun_ns + late_ns
    assert before_ns <= since_ns <= until_ns <= ended_ns + late_ns


def test_who_is_silent_is_no_longer_busy(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    (one, _), (other, _) = supervisor(run, "n1"), supervisor(run, "n2")
    one.look({}, lambda: Delays(busy=frozenset({0}), held=((ns_ago(80), ns_ago(10)),)))
    beats(one)
    monkeypatch.setattr(delays_elsewhere, "BEAT_S", -1.0)
    monkeypatch.setattr(delays_elsewhere, "LISTED_S", 0.0)
    held = other.delays().held
    monkeypatch.setattr(delays_elsewhere, "_SILENT_NS", 0)
    assert other.delays() == Delays(held=held), "nor is it held for longer and longer"
    monkeypatch.setattr(delays_elsewhere, "_SILENT_NS", 1 << 62)
    beats(one)
    assert other.delays().busy == {0}


def test_a_heartbeat_of_an_older_version_says_nothing_of_it(run: RunFolder) -> None:
    (one, _), (other, _) = supervisor(run, "n1"), supervisor(run, "n2")
    one.look({})
    beats(one)
    assert "busy" not in last_beat(one._node) and other.delays() == Delays()


def test_a_nan_after_steps_without_any_is_captured_by_its_sender_and_worded_as_the_first_since_then(
    run: RunFolder,
) -> None:
    """Also where its node saw none before, and the other one, which did, has now received it."""
    (one, _), (other, _) = supervisor(run, "n1"), supervisor(run, "n2")
    captured: list[str] = []

    def act(nan: Wanted) -> None:
        captured.append(f"{nan.folder}: {nan.incident.text}")

    first = "the first NaN or Inf: all_reduce"
    one.share(a_nan("0", f"rank 0 sends {first}", 5, ago_s=60), None, act)
    one.settle()
    one.note_over(IsOver(attempt=0, kind=IncidentKind.NAN, time_ns=ns_ago(30), since_step=40))
    one.settle()
    again = a_nan("0", "rank 0 receives the first NaN or Inf since step 12: all_reduce", 70, ago_s=1)
    one.share(replace(again, sent=False, nth=2), None, act)
    other.share(a_nan("3", f"rank 3 sends {first}", 70, ago_s=1), None, act)
    for _ in range(2):
        one.settle()
        other.settle()
    assert captured == [
        f"0: rank 0 sends {first}",
        "3: rank 3 sends the first NaN or Inf since step 40: all_reduce",
    ]
    assert not one.has_to_decide and not other.has_to_decide


def a_nan(folder: str, text: str, step: int, *, ago_s: float) -> Wanted:
    incident = Incident(kind=IncidentKind.NAN, text=text, moment=Moment(step, 1))
    return Wanted(folder=folder, incident=incident, sent=True, time_ns=ns_ago(ago_s))


def ns_ago(seconds: float) -> int:
    return time.monotonic_ns() - round(seconds * 1e9)


def test_the_last_nan_that_is_reported_says_so(run: RunFolder) -> None:
    third = a_nan("3", "rank 3 sends the first NaN or Inf: all_reduce", 70, ago_s=1).as_nth(MOST_INCIDENTS, 0)
    assert third.incident.text == f"rank 3 sends the first NaN or Inf: all_reduce{NO_MORE}"
    assert third.as_nth(MOST_INCIDENTS, 0) == third, "it has said so"
    raised = wanted(IncidentKind.EXCEPTION, "3", Moment(5))
    assert raised.as_nth(MOST_INCIDENTS, 5) == raised


def test_a_death_after_an_exception_of_another_node_that_was_outlived_is_captured(run: RunFolder) -> None:
    (one, _), (other, _) = supervisor(run, "n1"), supervisor(run, "n2")
    captured: list[str] = []
    for supervised, kind, ago_s in ((one, IncidentKind.EXCEPTION, 60), (other, IncidentKind.LOST, 1)):
        seen = replace(wanted(kind, "3", Moment(5)), time_ns=ns_ago(ago_s))
        supervised.share(seen, None, lambda seen: captured.append(seen.incident.kind))
        supervised.settle()
        one.note_over(IsOver(attempt=0, kind=IncidentKind.EXCEPTION, time_ns=ns_ago(50)))
        one.settle()
    assert captured == ["exception", "lost"]


def test_a_death_after_what_a_thread_of_another_node_raised_is_captured(run: RunFolder) -> None:
    (one, _), (other, _) = supervisor(run, "n1"), supervisor(run, "n2")
    captured: list[str] = []
    raised = replace(wanted(IncidentKind.EXCEPTION, "0", Moment(5)), time_ns=ns_ago(60), of_thread=True)
    died = replace(wanted(IncidentKind.LOST, "3", Moment(9)), time_ns=ns_ago(1))
    for supervised, seen in ((one, raised), (other, died)):
        supervised.share(seen, None, lambda seen: captured.append(seen.incident.kind))
        supervised.settle()
    assert captured == ["exception", "lost"]


def test_who_raised_by_itself_comes_before_who_raised_in_a_collective(run: RunFolder) -> None:
    captured: list[str] = []
    (one, _), (other, _) = supervisor(run, "n1"), supervisor(run, "n2")
    one.share(wanted(IncidentKind.EXCEPTION, "0", Moment(5, 1)), True, lambda _: captured.append("n1"))
    other.share(wanted(IncidentKind.OUT_OF_MEMORY, "3", Moment(5, 2)), None, lambda _: captured.append("n2"))
    one.settle()
    other.settle()
    assert captured == ["n2"]


def test_ranks_that_ran_together_have_one_failure_whatever_their_nodes_count(run: RunFolder) -> None:
    """After a restart that torchrun counts on one of them only."""
    captured: list[str] = []
    (one, _), (other, _) = supervisor(run, "n1"), supervisor(run, "n2")
    for name, owner in (("0.1", "n1"), ("1.1", "n1"), ("2", "n2"), ("3", "n2")):
        log = TinyLog(run.ranks / name, int(name[0]))
        log.issue(0, 1)
        about = {"rank": log.rank, "pid": 1, "node": owner, "world_size": 4, "started_ns": 10**18 - 2 * 10**9}
        write_json(log.folder / "rank.json", about)
    for supervised in (one, other):
        supervised.own(at_once=True)
    raised = replace(wanted(IncidentKind.EXCEPTION, "3", Moment(5, 1)), time_ns=ns_ago(20))
    followed = replace(wanted(IncidentKind.EXCEPTION, "0.1", Moment(5, 2)), time_ns=ns_ago(19))
    later = replace(wanted(IncidentKind.LOST, "1.1", Moment(9)), time_ns=ns_ago(1))
    other.share(raised, False, lambda seen: captured.append(seen.folder))
    one.share(followed, True, lambda seen: captured.append(seen.folder))
    for supervised in (one, other, one):
        supervised.settle()
    assert captured == ["3"] and not one.has_to_decide and not other.has_to_decide
    rank(run, "2.1", "n2")
    other.note_over(IsOver(attempt=0, kind=IncidentKind.EXCEPTION, time_ns=ns_ago(10)))
    other.settle()
    one.share(later, None, lambda seen: captured.append(seen.folder))
    one.settle()
    assert captured == ["3", "1.1"], "it was outlived, which is said of the same failure also after a restart"


def test_a_job_that_was_told_to_end_elsewhere_has_no_incident(run: RunFolder) -> None:
    captured: list[str] = []
    (one, _), other = supervisor(run, "n1"), node(run, "n2")
    one.share(wanted(IncidentKind.EXCEPTION, "0", Moment(5, 1)), True, lambda _: captured.append("n1"))
    write_json(other.supervisor_json, {"interrupted": {"signal": 2, "wall_ns": 5}})
    one.settle()
    assert captured == [] and not one.has_to_decide


FAILED = wanted(IncidentKind.EXCEPTION, "0", Moment(5, 1))


def told(run: RunFolder, name: str, *, ago_s: float) -> None:
    """A supervisor that was told to end."""
    other, _ = supervisor(run, name)
    other.note_told(ns_ago(ago_s))
    write_json(NodeFolder(run.nodes / name).supervisor_json, {"interrupted": {"signal": 15, "wall_ns": 5}})


def captures(run: RunFolder, begun_ago_s: float, happened_ago_s: float) -> list[str]:
    """What is captured of a failure and of a hang of rank 0: n2 was told to end 100 s before."""
    captured: list[str] = []
    one, _ = supervisor(run, "n1")
    rank(run, "0", "n1")
    about = run.ranks / "0" / "rank.json"
    began_s = time.clock_gettime(time.CLOCK_BOOTTIME) - begun_ago_s
    write_json(about, {**read_json(about), "started_ticks": round(began_s * os.sysconf("SC_CLK_TCK"))})
    told(run, "n2", ago_s=100)
    one.share(replace(FAILED, time_ns=ns_ago(happened_ago_s)), True, lambda _: captured.append("failure"))
    wait = Wait(0, lone_collective(time_created_ns=ns_ago(happened_ago_s)))
    stall = Stall(key=("", 1), group=Group(name="", ranks=()), waits=(wait,), never_came=(), unknown=())  # type: ignore[arg-type]
    one.share_hang(stall, 0, lambda: captured.append("hang"))
    one.settle()
    assert not one.has_to_decide
    return captured


@pytest.mark.parametrize(
    ("begun_ago_s", "happened_ago_s", "is_captured"),
    [(1000, 99, False), (1000, 105, False), (1000, 45, False), (1000, 35, True), (90, 85, True)],
)
def test_what_may_come_of_the_end_of_another_node_is_no_incident_and_all_else_is(
    begun_ago_s: float, happened_ago_s: float, is_captured: bool, run: RunFolder
) -> None:
    """In an elastic job the others go on: torchrun starts ranks anew. Others may take no notice of it."""
    assert captures(run, begun_ago_s, happened_ago_s) == (["failure", "hang"] if is_captured else [])


def test_when_another_node_was_told_is_as_old_as_its_report_where_nothing_else_says_it(run: RunFolder) -> None:
    for name, ago_s, number in (("n2", 100, 1), ("n3", 10, 2)):
        other, captured = node(run, name), list[str]()
        write_json(other.supervisor_json, {"interrupted": {"signal": 15, "wall_ns": 5}})
        then = time.time() - ago_s
        os.utime(other.supervisor_json, (then, then))
        one, _ = supervisor(run, f"of {name}")
        seen = replace(FAILED, folder=f"0.{number}", time_ns=ns_ago(5))
        one.share(seen, True, lambda _, captured=captured: captured.append("failure"))  # type: ignore[misc]
        one.settle()
        assert captured == (["failure"] if name == "n2" else [])


def test_while_nobody_can_say_how_long_ago_another_node_was_told_nothing_is_captured(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> float:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(among_nodes, "now_in", full)
    assert captures(run, 90, 85) == []


def test_when_a_supervisor_was_told_is_written_once(run: RunFolder) -> None:
    one, _ = supervisor(run, "n1")
    one.note_told(ns_ago(5))
    one.note_told(ns_ago(50))
    assert 5 <= read_json(run.nodes / "n1" / "told.json")["age_s"] < 40


def test_capsules_of_all_nodes_count(run: RunFolder) -> None:
    (one, _), other = supervisor(run, "n1"), node(run, "n2")
    write_json(other.supervisor_json, {"capsules": ["a", "b"], "evidence": ["c"]})
    write_json(one.supervisor_json, {"capsules": ["d"]})
    assert one.made_elsewhere() == 3


def test_a_neighbour_that_falls_silent_is_named_once(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    own, gone, ended = node(run, "n1"), node(run, "n2"), node(run, "n3")
    rank(run, "2", "n2")
    for one in (gone, ended):
        Heartbeat(one).once()
    write_json(ended.supervisor_json, {"exit_code": 0})
    told: list[str] = []
    watch = NeighbourWatch(run, own, Heartbeat(own), told.append)
    watch.look()
    heart = Heartbeat(gone)
    heart.once()
    heart.once()
    assert beat_of(gone) == 2
    monkeypatch.setattr(heartbeat, "SILENT_S", -1.0)
    watch.look()
    assert told == [], "its heart has beaten meanwhile"
    for _ in range(3):
        watch.look()
    assert len(told) == 1 and told[0].startswith("node n2 with rank 2 has been silent for 0 s"), told


def test_a_heartbeat_tells_which_ranks_are_gone(run: RunFolder) -> None:
    own = node(run, "n1")
    rank(run, "0", "n1")
    rank(run, "1", "n1")
    heart = Heartbeat(own)
    heart.tell(["0"], ["1"])
    heart.once()
    (state,) = node_states(run)
    assert state.has("0") and not state.has("1")


DAMAGED = ("{", '{"restart": "one"}')


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_node_that_cannot_be_read_is_passed_over_and_told_once(run: RunFolder, damaged: str) -> None:
    """Else one damaged file keeps an incident from being decided, and the supervisor from its end."""
    (one, problems), other = supervisor(run, "n1"), node(run, "n2")
    other.about.write_text(damaged)
    captured: list[str] = []
    one.share(wanted(IncidentKind.NAN, "3", Moment(5, 2)), None, lambda _: captured.append("nan"))
    one.settle()
    assert captured == ["nan"] and not one.has_to_decide
    assert [text for text in problems if text.startswith(f"node n2 is passed over: {other.about}")], problems


def test_of_the_others_that_can_be_read_one_may_still_have_been_told_to_end(run: RunFolder) -> None:
    captured: list[str] = []
    (one, _), damaged, told = supervisor(run, "n1"), node(run, "n2"), node(run, "n3")
    damaged.about.write_text("{")
    write_json(told.supervisor_json, {"interrupted": {"signal": 2, "wall_ns": 5}})
    one.share(wanted(IncidentKind.EXCEPTION, "0", Moment(5, 1)), True, lambda _: captured.append("n1"))
    one.settle()
    assert captured == [] and not one.has_to_decide


def test_a_damaged_file_keeps_no_request_from_being_looked_at(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = supervisor(run, "n1")
    looked: list[str] = []

    def damaged() -> None:
        raise CapsuleError("x is damaged")

    monkeypatch.setattr(one._neighbours, "look", damaged)
    monkeypatch.setattr(one._requests, "look", lambda: looked.append("requests"))
    with pytest.raises(CapsuleError, match="x is damaged"):
        one.look({})
    assert looked == ["requests"]
    assert one._heart._ranks == {"living": [], "gone": []}, "the others are told of its ranks"


def test_a_damaged_request_for_logs_keeps_no_incident_from_being_published(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor the supervisor from its beginning."""
    (run.nodes / "publish.json").write_text("{")
    own, published = node(run, "n1"), list[str]()
    monkeypatch.setattr(publisher, "publish_logs", lambda local, run, between: published.append("logs"))
    found = Publisher(RunFolder(run.path, tmp_path / "local"), own, Heartbeat(own), published.append)
    found.look()
    assert found._thread is None and published == []
    (run.decisions / "0-nan" / "decided").mkdir(parents=True)
    found._next_s = 0.0
    found.look()
    assert found._thread is not None
    found._thread.join()
    assert published == ["logs"]


@pytest.mark.parametrize(("newest", "ends"), [(None, []), (7, [7])])
def test_who_reads_the_ends_of_logs_is_answered_before_all_of_them_are_copied(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: int | None, ends: list[int]
) -> None:
    own, copied, answered = node(run, "n1"), list[int](), list[str]()
    heart = Heartbeat(own)
    monkeypatch.setattr(publisher, "publish_ends", lambda local, run, newest_bytes: copied.append(newest_bytes))
    later = {"asked": "later", "newest_bytes": 7}

    def publish_logs(local: LocalFolder, run: Path, between: Callable[[], None]) -> None:
        between()
        answered.append(heart._published)
        if copied and len(answered) == 1:  # asked for while the logs are copied
            (run / "nodes" / "publish.json").write_text(json.dumps(later))
            between()

    monkeypatch.setattr(publisher, "publish_logs", publish_logs)
    found = Publisher(RunFolder(run.path, tmp_path / "local"), own, heart, pytest.fail)
    (run.nodes / "publish.json").write_text(
        json.dumps({"asked": "a"} | ({} if newest is None else {"newest_bytes": newest}))
    )
    found.look()
    assert found._thread is not None
    found._thread.join()
    assert copied == [*ends, *([7] if ends else [])] and answered == (["a"] if ends else [""])
    assert heart._published == ("later" if ends else "a")
    (run.decisions / "0-nan" / "decided").mkdir(parents=True)
    found._next_s = 0.0
    found.look()
    found._thread.join()
    assert len(answered) == 2, "an incident needs all"


@pytest.fixture
def at_the_end(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Publisher, LocalFolder, list[str]]:
    """The publisher of a node whose part of the job is over, what it publishes, and what it tells."""
    monkeypatch.setattr(publisher, "LAST_TRIES_S", -1.0)
    own, told, local = node(run, "n1"), list[str](), LocalFolder(tmp_path / "local")
    TinyLog(local.ranks / "0").note("begin")
    return Publisher(RunFolder(run.path, local.path), own, Heartbeat(own), told.append), local, told


def test_a_rank_that_outlives_the_command_writes_on(
    run: RunFolder, at_the_end: tuple[Publisher, LocalFolder, list[str]]
) -> None:
    """torchrun was killed, say: what it raises then is what the job ended with."""
    found, local, told = at_the_end
    here = {"pid": os.getpid(), "started_ticks": start_ticks(os.getpid())}
    write_json(local.ranks / "0" / "rank.json", here)
    (local.ranks / "0" / "payload.00000.seg").write_bytes(b"received")
    (local.path / "states" / "0" / "5").mkdir(parents=True)
    (local.path / "states" / "0" / "5" / "state.json").write_text("{}")
    found.finish()
    assert local.path.exists() and not NodeFolder(run.nodes / "n1").published.exists()
    assert read_log(run.ranks / "0").notes, "what it has recorded so far"
    assert (run.ranks / "0" / "payload.00000.seg").read_bytes() == b"received"
    assert (run.states / "0" / "5" / "state.json").exists(), "a scheduler may remove the folder soon"
    assert told == [
        f"{run.path} lacks the logs of this node: rank 0 still runs; they are in {local.path}: "
        f"run `prismdbg publish {run.path}` on this node when the job has ended"
    ]
    write_json(local.ranks / "0" / "rank.json", here | {"started_ticks": 3})
    found.finish()
    assert not local.path.exists() and NodeFolder(run.nodes / "n1").published.exists() and len(told) == 1


@pytest.mark.parametrize("rank_json", [None, "", '{"pid": 4194305}'], ids=["no log", "not described yet", "ended"])
def test_a_process_that_the_command_left_may_become_a_rank(
    run: RunFolder, at_the_end: tuple[Publisher, LocalFolder, list[str]], rank_json: str | None
) -> None:
    """A script ends with `torchrun ... &`, say, perhaps after another job. rank_json: of a log that is there."""
    found, local, told = at_the_end
    if rank_json is None:
        shutil.rmtree(local.ranks / "0")
    elif rank_json:
        (local.ranks / "0" / "rank.json").write_text(rank_json)
    config = str(NodeFolder(run.nodes / "n1").config)
    for variables, is_of_the_job in (({"PRISMDBG_CONFIG": config}, True), ({"PRISMDBG_CONFIG": config + "2"}, False)):
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=os.environ | variables) as left:
            found.finish()
            assert local.path.exists() is is_of_the_job
            if is_of_the_job:
                assert len(told) == 1 and f"a process of the job (PID {left.pid}) still runs" in told[0]
            left.communicate()
    assert len(told) == 1


def test_one_log_folder_that_cannot_be_looked_at_hides_no_other(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = supervisor(run, "n1")
    rank(run, "0", "n1")
    rank(run, "1", "n1")
    exists = Path.exists

    def stale(path: Path) -> bool:
        if path.parent.name == "0":
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", stale)
    assert [folder.name for folder in one.own(at_once=True)] == ["1"]


def test_a_log_that_its_rank_shortens_meanwhile_is_counted_without_what_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payload.00001.seg").write_bytes(bytes(4096))
    there = [tmp_path / "payload.00000.seg", tmp_path / "payload.00001.seg"]
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: iter(there))
    assert payload_bytes(tmp_path) == there[1].lstat().st_blocks * 512


@pytest.mark.parametrize("end", [{}, {"exit_code": 0}])
def test_a_supervisor_that_decided_and_fell_silent_is_replaced_unless_it_has_ended(
    end: dict[str, int], run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "FOLLOWED_S", 0.0)
    (one, _), other = supervisor(run, "n1"), node(run, "n2")
    write_json(other.supervisor_json, end)
    decider = Heartbeat(other)
    captured: list[str] = []
    one.share(wanted(IncidentKind.NAN, "3", Moment(5, 2)), None, lambda _: captured.append("nan"))
    (run.decisions / "0-nan" / "decided").mkdir()
    write_json(run.decisions / "0-nan" / "decided" / "by.json", {"node": "n2"})
    one.settle()
    monkeypatch.setattr(heartbeat, "SILENT_S", -1.0)
    for _ in range(3):
        decider.once()
        one.settle()
    assert one.has_to_decide and captured == []
    for _ in range(2):
        one.settle()
    assert not one.has_to_decide and captured == ([] if end else ["nan"])
