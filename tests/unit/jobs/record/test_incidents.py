"""When the logs of a job make an incident, and of whom: decided from events alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prismdbg.capsule.log.batch import Batch
from prismdbg.capsule.log.events import Note, StepMark
from prismdbg.capsule.log.format import StepSource
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.errors import UsageError
from prismdbg.jobs.record.incidents import SETTLE_NS, IncidentWatch, Wanted, parse_triggers
from prismdbg.model.collective import Collective, Group, Identity, State, TensorMeta
from prismdbg.model.moment import Moment
from tests.unit.logs import WORLD, lone_collective

NOW = 10**12
ALL = parse_triggers("exception,nan,oom,slow=3")


def raised(time_ns: int, text: str, *, kind: str = "exception", **more: object) -> Note:
    told = {"incident": kind, "type": "RuntimeError", "text": text, "moment": "3.1", **more}
    return Note("incident", time_ns, told)


def collective(time_ns: int, *, sent: bool = False) -> Collective:
    return lone_collective(sent_nonfinite=sent, time_created_ns=time_ns)


def sent(time_ns: int) -> Batch:
    return Batch(notable=[collective(time_ns, sent=True)])


def received(time_ns: int, *, synthesized: bool = False) -> Batch:
    done = replace(collective(10), state=State.COMPLETED, time_completed_ns=time_ns)
    return Batch(notable=[replace(done, received_nonfinite=True, synthesized=synthesized)])


def settled(watch: IncidentWatch) -> list[Wanted]:
    assert watch.due(NOW + SETTLE_NS - 1, ended=False) == []
    return watch.due(NOW + SETTLE_NS, ended=False)


def test_of_those_that_raised_the_first_is_the_incident_whatever_log_was_read_first() -> None:
    watch = IncidentWatch(ALL)
    watch.feed("0", raised(200, "Connection closed by peer"), NOW)
    watch.feed("1", raised(100, "the cause"), NOW)
    assert watch.due(NOW, ended=False) == []
    assert watch.settling
    (wanted,) = settled(watch)
    assert (wanted.folder, wanted.incident.text, wanted.incident.moment) == (
        "1",
        "RuntimeError: the cause",
        Moment(3, 1),
    )
    assert not watch.settling
    watch.feed("2", raised(300, "another"), NOW)
    assert watch.due(NOW + 9 * SETTLE_NS, ended=True) == [], "an incident of each kind once"


def test_who_lost_a_connection_follows_one_that_closed_it_before_it_raised() -> None:
    """`finally: destroy_process_group()` closes them before the exception is noted."""
    watch = IncidentWatch(ALL)
    watch.feed("0", raised(100, "Connection closed by peer"), NOW)
    watch.feed("1", raised(104, "bad batch"), NOW)
    watch.feed("2", raised(105, "another bad batch"), NOW)
    (wanted,) = settled(watch)
    assert (wanted.folder, wanted.incident.text, wanted.time_ns) == ("1", "RuntimeError: bad batch", 104)


@pytest.mark.parametrize(
    ("folder", "code", "time_ns", "left"),
    [
        ("1", 3, 100, "; rank 1 had exited with exit code 3"),
        ("1", 130, 100, "; rank 1 had exited with exit code 130 (KeyboardInterrupt, as after SIGINT)"),
        ("1", 0, 100, ""),
        ("1", 3, 300, ""),
        ("0", 1, 100, ""),
        ("1.1", 3, 100, ""),
    ],
)
def test_who_had_left_is_named_with_what_its_peer_raised(folder: str, code: int, time_ns: int, left: str) -> None:
    watch = IncidentWatch(ALL)
    watch.feed("0", raised(200, "Connection closed by peer"), NOW)
    watch.feed(folder, Note("exit", time_ns, {"code": code}), NOW)
    (wanted,) = settled(watch)
    assert (wanted.folder, wanted.incident.text) == ("0", f"RuntimeError: Connection closed by peer{left}")


def test_a_rank_that_died_without_a_word_is_why_the_others_raised() -> None:
    watch = IncidentWatch(ALL)
    watch.feed("0", raised(200, "Connection closed by peer"), NOW)
    (wanted,) = watch.lost("1", Moment(3, 1), "died without a word")
    assert (wanted.folder, wanted.incident.kind) == ("1", IncidentKind.LOST)
    assert watch.due(NOW + SETTLE_NS, ended=False) == []
    assert watch.lost("2", Moment(3, 1), "died without a word") == []


@pytest.mark.parametrize("ends", ["raises", "dies"])
def test_an_exception_of_a_thread_hides_nothing_that_comes_later(ends: str) -> None:
    """The program goes on without that thread."""
    watch = IncidentWatch(ALL)
    watch.feed("0", raised(100, "the server is gone", thread=True), NOW)
    (wanted,) = settled(watch)
    assert wanted.incident.text == "RuntimeError: the server is gone"
    watch.feed("0", raised(200, "the server is gone, still", thread=True), NOW)
    assert watch.due(NOW + 9 * SETTLE_NS, ended=True) == []
    if ends == "raises":
        watch.feed("1", raised(300, "the cause"), NOW)
        (wanted,) = settled(watch)
        assert wanted.incident.text == "RuntimeError: the cause"
        assert watch.lost("1", Moment(3, 1), "died without a word") == []
    else:
        (wanted,) = watch.lost("1", Moment(3, 1), "died without a word")
        assert wanted.incident.kind == IncidentKind.LOST


def test_what_a_thread_and_then_the_program_raised_is_one_incident() -> None:
    watch = IncidentWatch(ALL)
    watch.feed("0", raised(200, "the thread has failed"), NOW)
    watch.feed("0", raised(100, "the cause", thread=True), NOW)
    (wanted,) = settled(watch)
    assert wanted.incident.text == "RuntimeError: the cause"
    watch.feed("1", raised(300, "Connection closed by peer"), NOW)
    assert watch.due(NOW + 9 * SETTLE_NS, ended=True) == []


def test_each_attempt_of_a_restarted_job_has_its_own() -> None:
    watch = IncidentWatch(ALL)
    watch.feed("1", raised(100, "the first attempt"), NOW)
    watch.feed("2", sent(90), NOW)
    assert len(settled(watch)) == 2
    watch.feed("0.1", raised(300, "the second attempt"), NOW)
    watch.feed("1", raised(400, "late, of the first"), NOW)
    watch.feed("2.1", sent(290), NOW)
    found = watch.due(NOW, ended=True)
    assert [(w.folder, w.incident.kind) for w in found] == [("0.1", "exception"), ("2.1", "nan")]
    assert found[1].incident.text.startswith("rank 2 (attempt 2) sends the first NaN")
    (lost,) = watch.lost("1.2", Moment(3, 1), "died without a word")
    assert lost.incident.text == "rank 1 (attempt 3) died without a word"


def test_the_end_of_the_job_settles_it() -> None:
    watch = IncidentWatch(ALL)
    watch.feed("1", raised(100, "can't allocate memory", kind="oom"), NOW)
    (wanted,) = watch.due(NOW, ended=True)
    assert wanted.incident.kind is IncidentKind.OUT_OF_MEMORY


@pytest.mark.parametrize(("triggers", "count"), [("oom", 1), ("exception", 1), ("nan", 0), ("none", 0)])
def test_only_what_was_asked_for(triggers: str, count: int) -> None:
    watch = IncidentWatch(parse_triggers(triggers))
    watch.feed("1", raised(100, "can't allocate memory", kind="oom"), NOW)
    assert len(watch.due(NOW, ended=True)) == count
    assert watch.lost("1", Moment(0), "") == [] or triggers == "exception"


def test_the_first_nan_is_named_by_whoever_sent_it() -> None:
    watch = IncidentWatch(ALL)
    watch.feed("0", received(50), NOW)
    watch.feed("2", sent(40), NOW)
    watch.feed("2", Group(name=WORLD, ranks=(0, 1, 2), desc="default_pg"), NOW)  # read after the call, in one poll
    (wanted,) = settled(watch)
    assert wanted.folder == "2" and wanted.last == Moment(3, 1)
    assert wanted.incident.text.startswith("rank 2 sends the first NaN or Inf: all_reduce in group world, 3.1")


def on_device(seq: int, created_ns: int, completed_ns: int, *, sent: bool) -> Batch:
    """It is told of once, at its end, when all have received what one has sent."""
    call = lone_collective(
        identity=Identity(WORLD, seq),
        inputs=(TensorMeta((4,), "float32", "cuda:0"),),
        sent_nonfinite=sent,
        time_created_ns=created_ns,
    )
    ended = replace(call, state=State.COMPLETED, time_completed_ns=completed_ns, received_nonfinite=True)
    return Batch(notable=[ended])


def test_on_a_device_the_first_nan_is_of_who_had_it_first_not_of_whose_host_came_first() -> None:
    """What a host issues early the device may send late: there, what was sent is known at the end."""
    watch = IncidentWatch(ALL)
    watch.feed("0", on_device(8, 10, 90, sent=True), NOW)
    watch.feed("1", on_device(7, 50, 60, sent=True), NOW)
    (wanted,) = settled(watch)
    assert wanted.folder == "1" and wanted.sent


def test_on_a_device_the_first_nan_is_of_who_sent_it_not_of_who_received_it_a_moment_sooner() -> None:
    watch = IncidentWatch(ALL)
    for rank, completed_ns in enumerate((58, 61, 60, 59)):
        watch.feed(str(rank), on_device(7, 50, completed_ns, sent=rank == 2), NOW)
        watch.feed(str(rank), on_device(8, 51, completed_ns + 10, sent=True), NOW)
    (wanted,) = settled(watch)
    assert wanted.folder == "2" and wanted.sent
    assert wanted.incident.text.startswith("rank 2 sends the first NaN or Inf")


def test_on_a_device_a_message_is_of_who_sent_it() -> None:
    """The receiver's end is told first; to it the message is another operator with another peer."""
    watch = IncidentWatch(ALL)
    for rank, op, peer, completed_ns in ((1, "recv_", 0, 60), (0, "send", 1, 69)):
        watch.feed(str(rank), Group(name=WORLD, ranks=(0, 1)), NOW)
        (call,) = on_device(0, 50, completed_ns, sent=op == "send").notable
        identity = Identity(WORLD, 0, op, peer)
        watch.feed(str(rank), Batch(notable=[replace(call, op=op, is_p2p=True, identity=identity)]), NOW)
    (wanted,) = settled(watch)
    assert wanted.folder == "0" and wanted.incident.text.startswith("rank 0 sends the first NaN or Inf: send")


def test_a_nan_that_nobody_sent_is_named_by_who_received_it() -> None:
    watch = IncidentWatch(ALL)
    watch.feed("0", received(50), NOW)
    (wanted,) = settled(watch)
    assert wanted.folder == "0" and "rank 0 receives the first NaN or Inf" in wanted.incident.text


def test_a_nan_that_was_made_up_is_no_incident() -> None:
    watch = IncidentWatch(ALL)
    watch.feed("0", received(NOW, synthesized=True), NOW)
    assert watch.due(NOW + SETTLE_NS, ended=True) == []


def test_a_step_that_takes_a_multiple_of_the_median() -> None:
    watch = IncidentWatch(ALL)
    marks = [*range(0, 110, 10), 129]  # steps of 10, then one of 29 and one of 30 and more
    for number, time_ns in enumerate(marks, 1):
        watch.feed("0", StepMark(number, time_ns, StepSource.OPTIMIZER), NOW)
    assert not watch.settling
    watch.feed("0", StepMark(13, 129 + 31, StepSource.OPTIMIZER), NOW)
    (wanted,) = settled(watch)
    assert wanted.incident.kind is IncidentKind.SLOW
    assert wanted.incident.moment == Moment(12) and wanted.last is not None and wanted.last.step == 12
    assert "waited" not in wanted.incident.text
    watch.feed("0", StepMark(14, 9999, StepSource.OPTIMIZER), NOW)
    assert not watch.settling


@pytest.mark.parametrize(
    ("waits_s", "pairs", "folder", "waited"),
    [
        ((30, 28, 1, 29), False, "2", "; the others waited 28.00 s for rank 2"),
        ((30, 28, 1, 29), True, "2", "; rank 2 waited least in it, the others 28.00 s longer"),
        ((2, 3, 2, 3), False, "0", ""),
    ],
)
def test_a_slow_step_is_of_the_rank_for_which_the_others_waited(
    waits_s: tuple[int, ...], pairs: bool, folder: str, waited: str
) -> None:
    """The step of every rank is slow. Where nobody waited, all were slow by themselves; and where not all of them meet,
    it is not known for whom they waited."""
    watch = IncidentWatch(ALL)
    second = 10**9
    for number in range(1, 13):
        for rank in range(4):
            watch.feed(str(rank), StepMark(number, number * second, StepSource.OPTIMIZER), NOW)
    for rank in range(4):
        watch.feed(str(rank), Group(name=WORLD, ranks=tuple(range(4))), NOW)
        if pairs:
            watch.feed(str(rank), Group(name="pair", ranks=(0, 1) if rank < 2 else (2, 3)), NOW)
    for rank, wait_s in enumerate(waits_s):
        watch.feed(str(rank), Batch(waited_ns={12: wait_s * second}), NOW)
    for rank in range(4):
        watch.feed(str(rank), StepMark(13, (12 + 31) * second, StepSource.OPTIMIZER), NOW)
    (wanted,) = settled(watch)
    assert wanted.folder == folder
    assert wanted.incident.text == f"step 12 took 31.00 s, 31.0 times the median{waited}"
    assert wanted.waited_for is bool(waited)


@pytest.mark.parametrize("text", ["sloth", "hang=soon", "slow=very"])
def test_what_is_no_trigger(text: str) -> None:
    with pytest.raises(UsageError):
        parse_triggers(text)


def test_triggers_as_they_are_typed() -> None:
    assert parse_triggers("nan, hang=2m,slow") == {"nan": "", "hang": "2m", "slow": "3"}
    assert parse_triggers("none") == parse_triggers("") == {}
