"""Which of several ends of ranks is said to be the cause, and that no other one is hidden by it."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from prismdbg.capsule.log.events import Note, StepMark
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.failures import Died, Exited, Raised
from prismdbg.diagnosis.hang import HangDetector
from prismdbg.diagnosis.stops import How, Stopped
from prismdbg.diagnosis.verdict import Certainty, Verdict
from prismdbg.diagnosis.why import Diagnosis, diagnose
from prismdbg.log.rank_log import columns_of
from prismdbg.log.whole_batch import whole_batch
from prismdbg.model.collective import Failure, State
from tests.unit.logs import MILLISECOND_NS, Job, put_on_device

V = TypeVar("V", bound=Verdict)
SECOND_NS = 1000 * MILLISECOND_NS
CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"


def found_in(job: Job, after_ns: int = 0, **more: Any) -> Diagnosis:
    evidence = Evidence(logs=job.logs, world_size=len(job.ranks), ended_wall_ns=job.now_ns + after_ns, **more)
    return diagnose(evidence)


def said(diagnosis: Diagnosis) -> list[tuple[str, Certainty, int]]:
    """Kind, certainty and first rank of each verdict, in order."""
    return [(verdict.kind, verdict.certainty, verdict.ranks[0]) for verdict in diagnosis.verdicts]


def text_of(diagnosis: Diagnosis) -> str:
    return "\n".join(line for verdict in diagnosis.verdicts for line in (verdict.text, *verdict.lines))


def first_of(diagnosis: Diagnosis, kind: type[V]) -> V:
    return next(verdict for verdict in diagnosis.verdicts if isinstance(verdict, kind))


def fail(job: Job, rank: int, failure: Failure | None = None) -> None:
    """The rank's last call, now."""
    calls = job.calls(rank)
    calls[-1] = replace(calls[-1], state=State.FAILED, time_completed_ns=job.now_ns, failure=failure)


def raises_in_call(job: Job, rank: int, text: str, failure: Failure | None = None) -> None:
    job.call(only={rank}, done=False)
    fail(job, rank, failure)
    job.raises(rank, "RuntimeError", text)


def refused_then_lost() -> Job:
    """Rank 0's call is refused by its backend, rank 1 loses its connection, and rank 2 computes."""
    job = Job(3)
    job.steps(3)
    raises_in_call(job, 0, "Invalid scalar type", Failure("RuntimeError", "Invalid scalar type", at_issue=True))
    raises_in_call(job, 1, CLOSED)
    return job


class TestWhoLostItsConnectionIsNotTheFirst:
    def test_a_rank_that_its_launcher_ended_after_another_is_not_accused(self) -> None:
        job = refused_then_lost()
        gone = {0: job.now_ns, 1: job.now_ns + SECOND_NS, 2: job.now_ns + 2 * SECOND_NS}

        found = found_in(job, silent=frozenset({2}), signals={2: signal.SIGTERM}, gone_wall_ns=gone)

        raised = first_of(found, Raised)
        assert found.verdicts[0] is raised
        assert (raised.ranks, raised.certainty, raised.followers) == ((0,), Certainty.CERTAIN, (1,))
        assert raised.inside is None, "it was refused before any peer had to do with it"
        assert not any(isinstance(verdict, Died) for verdict in found.verdicts)
        assert "connections were closed before" not in text_of(found)

    def test_nor_where_its_end_was_not_seen_and_the_first_error_is_no_lost_connection(self) -> None:
        found = found_in(refused_then_lost(), silent=frozenset({2}))
        assert [one for one in said(found) if one[0] != "stopped"] == [("raised", Certainty.CERTAIN, 0)]

    def test_it_is_where_the_first_error_is_one(self) -> None:
        job = Job(3)
        job.steps(3)
        raises_in_call(job, 0, CLOSED)
        raises_in_call(job, 1, "Invalid scalar type")

        died = first_of(found_in(job, silent=frozenset({2})), Died)

        assert (died.ranks, died.certainty, died.followers) == ((2,), Certainty.LIKELY, (0, 1))
        assert "connections were closed before any other error" in "\n".join(died.lines)

    def test_where_nobody_lost_a_connection_that_is_not_said(self) -> None:
        job = Job(2)
        job.steps(3)
        job.note(1, "exit", code=0)

        died = first_of(found_in(job, silent=frozenset({0})), Died)

        assert "connections" not in "\n".join(died.lines)
        assert "it is the only rank whose log has no end record" in died.lines


class TestWhatADeathDoesNotExplain:
    def job(self) -> Job:
        job = Job(3)
        job.steps(3)
        job.raises(1, "ValueError", "bad batch")
        return job

    def test_an_exception_outside_of_a_collective_hides_no_death(self) -> None:
        job = self.job()
        found = found_in(job, silent=frozenset({0, 2}), died_first=2, signals={2: signal.SIGSEGV})
        assert said(found)[:2] == [("died", Certainty.CERTAIN, 2), ("raised", Certainty.LIKELY, 1)]

    def test_one_that_was_earlier_is_told_first(self) -> None:
        job = self.job()
        gone = {2: job.now_ns + SECOND_NS}
        found = found_in(job, silent=frozenset({0, 2}), died_first=2, signals={2: signal.SIGKILL}, gone_wall_ns=gone)
        assert said(found)[:2] == [("raised", Certainty.LIKELY, 1), ("died", Certainty.LIKELY, 2)]

    def test_an_exception_in_a_call_long_before_it_is_told(self) -> None:
        job = Job(3)
        job.steps(3)
        raises_in_call(job, 0, "Invalid scalar type")
        gone = {2: job.now_ns + 5 * SECOND_NS}
        found = found_in(job, silent=frozenset({2}), died_first=2, signals={2: signal.SIGKILL}, gone_wall_ns=gone)
        assert ("raised", Certainty.LIKELY, 0) in said(found)
        assert first_of(found, Died).followers == ()


class TestExceptionsInOrder:
    def job(self, first: str) -> Job:
        job = Job(3)
        job.steps(3)
        raises_in_call(job, 0, first)
        raises_in_call(job, 1, CLOSED)
        job.now_ns += 5 * SECOND_NS
        job.raises(2, "RuntimeError", "DataLoader worker (pid 77) is killed by signal: Terminated.")
        return job

    def test_one_outside_of_a_collective_is_not_the_cause_of_what_came_before_it(self) -> None:
        found = found_in(self.job("Invalid scalar type"))

        assert [one for one in said(found) if one[0] == "raised"] == [
            ("raised", Certainty.LIKELY, 0),
            ("raised", Certainty.LIKELY, 2),
        ]
        first, second = (verdict for verdict in found.verdicts if isinstance(verdict, Raised))
        assert (first.followers, second.followers, second.earlier) == ((1,), (), (1,))
        assert "rank 1 had failed before it" in second.lines
        stopped = first_of(found, Stopped)
        assert stopped.certainty is Certainty.HINT, "its calls had failed when rank 2 raised"
        assert "after the others had failed" in stopped.absent[0].did

    @pytest.mark.parametrize(
        ("silent", "certainty"), [({0: signal.SIGTERM}, Certainty.CERTAIN), ({}, Certainty.LIKELY)]
    )
    def test_lost_connections_before_it_may_be_its_own(self, silent: dict[int, int], certainty: Certainty) -> None:
        """`finally: destroy_process_group()` comes before the note of it; but so may a death that nobody saw."""
        job = Job(4)
        job.steps(3)
        raises_in_call(job, 1, CLOSED)
        job.raises(2, "ValueError", "bad batch")
        gone = dict.fromkeys((0, 3), job.now_ns)
        signals = dict.fromkeys((0, 3), signal.SIGTERM) if silent else {}
        found = found_in(job, silent=frozenset({0, 3}), signals=signals, gone_wall_ns=gone)
        raised = [verdict for verdict in found.verdicts if isinstance(verdict, Raised)]
        assert [(one.ranks, one.certainty, one.earlier) for one in raised] == [((2,), certainty, (1,))]


class TestOpenCalls:
    def job(self, **more: Any) -> Job:
        """Rank 1 has a call open and raises; its process takes a minute to end."""
        job = Job(3)
        job.steps(3)
        job.call(only={1}, done=False)
        job.calls(1)[-1] = replace(job.calls(1)[-1], **more)
        job.raises(1, "ValueError", "bad loss in backward")
        return job

    def test_who_raises_while_an_asynchronous_call_is_open_is_not_in_it(self) -> None:
        found = found_in(self.job(is_async=True), 60 * SECOND_NS, silent=frozenset({0, 2}))

        assert said(found) == [("raised", Certainty.CERTAIN, 1)]
        assert "inside a collective" not in text_of(found)

    def test_unless_it_waits_for_it(self) -> None:
        job = self.job(is_async=True)
        job.calls(1)[-1] = replace(job.calls(1)[-1], time_waited_ns=job.now_ns)
        raised = first_of(found_in(job, silent=frozenset({0, 2})), Raised)
        assert raised.inside is not None

    def test_a_call_of_another_thread_does_not_hold_the_main_thread(self) -> None:
        raised = first_of(found_in(self.job(thread_id=9), silent=frozenset({0, 2})), Raised)
        assert (raised.inside, raised.certainty) == (None, Certainty.CERTAIN)

    def test_a_call_of_the_main_thread_does_not_hold_another_one(self) -> None:
        """A library that reports to a server fails while the ranks wait for rank 2: a stop, not its exception."""
        job = Job(3)
        job.steps(3)
        job.call(without={2}, done=False)
        job.raises(1, "ConnectionError", "upload failed", thread=True)

        found = found_in(job, 60 * SECOND_NS)

        assert said(found) == [("stopped", Certainty.CERTAIN, 2), ("raised", Certainty.LIKELY, 1)]
        assert "inside a collective" not in text_of(found)


class TestExitCodes:
    def test_a_rank_that_ends_itself_with_an_error_is_a_finding(self) -> None:
        job = Job(3)
        job.steps(3)
        job.note(2, "exit", code=1)

        found = found_in(job, silent=frozenset({0, 1}), signals={0: signal.SIGTERM, 1: signal.SIGTERM})

        assert said(found) == [("exited", Certainty.CERTAIN, 2)]
        assert found.verdicts[0].text == "rank 2 exited with exit code 1 at 3.0"

    def test_who_lost_its_connection_to_it_follows(self) -> None:
        job = Job(2)
        job.steps(3)
        job.note(1, "exit", code=3)
        raises_in_call(job, 0, CLOSED)

        found = found_in(job)

        assert said(found) == [("exited", Certainty.CERTAIN, 1), ("stopped", Certainty.CERTAIN, 1)]
        assert first_of(found, Exited).followers == (0,)

    def test_of_several_the_first_is_likely(self) -> None:
        job = Job(3)
        job.steps(3)
        for rank, code in ((1, 1), (0, 1), (2, 4)):
            job.note(rank, "exit", code=code)

        found = found_in(job)

        assert said(found) == [("exited", Certainty.LIKELY, 1)]
        assert "rank 0 exited after it with exit code 1" in found.verdicts[0].lines
        assert "rank 2 exited after it with exit code 4" in found.verdicts[0].lines

    def test_who_caught_the_error_of_a_lost_peer_and_ended_itself_is_not_the_cause(self) -> None:
        job = Job(2)
        job.steps(3)
        raises_in_call(job, 0, CLOSED)
        job.call(only={1}, done=False)
        fail(job, 1)
        job.note(1, "exit", code=1)

        assert ("exited", 1) not in [(kind, rank) for kind, _, rank in said(found_in(job))]

    def test_an_exception_before_it_is_the_cause(self) -> None:
        """A launcher ends the others, whose programs end themselves when they are told to."""
        job = Job(2)
        job.steps(3)
        job.raises(1, "ValueError", "bad batch")
        job.note(0, "exit", code=1)

        assert said(found_in(job)) == [("raised", Certainty.CERTAIN, 1)]

    def test_a_job_that_failed_is_not_without_a_problem(self) -> None:
        job = Job(2)
        job.steps(3)
        job.exits()

        assert (
            found_in(job, exit_code=2).summary == "the job ended with exit code 2, and no cause is found in these logs"
        )
        assert found_in(job, exit_code=2, interrupted=True).summary == "no problem found in these logs"

    @pytest.mark.parametrize("is_held", [True, False])
    def test_who_was_held_for_an_image_is_not_late(self, is_held: bool) -> None:
        """The job is interrupted as soon as the rank is released: the others waited for the image."""
        job = Job(2)
        job.steps(5)
        if is_held:
            job.note(1, "parked")
        job.call(late_ns={1: 2 * SECOND_NS}, done=False)
        if is_held:
            job.note(1, "released")
        waits = [] if is_held else [("stopped", Certainty.LIKELY, 1)]

        assert said(found_in(job, exit_code=130, interrupted=True)) == waits

    def test_json_tells_how_the_job_ended(self) -> None:
        job = Job(2)
        job.steps(3)
        job.exits()

        failed, well, unseen = (found_in(job, **ended).to_json() for ended in ({"exit_code": 2}, {"exit_code": 0}, {}))

        assert (failed["exit_code"], well["exit_code"], unseen["exit_code"]) == (2, 0, None)
        assert failed["summary"] == "the job ended with exit code 2, and no cause is found in these logs"
        assert found_in(job, is_running=True).to_json()["is_running"] is True
        job.raises(1, "ValueError", "bad batch")
        assert found_in(job, exit_code=2).to_json()["summary"] is None, "the verdicts say it"


class TestWatchdogs:
    def job(self, waited_ns: int) -> tuple[Job, dict[str, Any]]:
        job = Job(4)
        job.steps(5)
        job.call(without={2}, done=False)
        put_on_device(job)
        return job, {"after_ns": waited_ns, "silent": frozenset(job.ranks), "died_first": 0}

    def test_what_a_watchdog_aborts_comes_after_what_it_waited_for(self) -> None:
        job, ends = self.job(600 * SECOND_NS)
        found = found_in(job, **ends, signals={0: signal.SIGABRT, 1: signal.SIGTERM})
        assert said(found) == [("stopped", Certainty.CERTAIN, 2), ("died", Certainty.CERTAIN, 0)]
        assert "aborted (SIGABRT) by a crash in native code, or by a watchdog" in found.verdicts[1].text

    def test_a_crash_in_a_short_wait_is_the_cause(self) -> None:
        job, ends = self.job(3 * SECOND_NS)
        found = found_in(job, **ends, signals={0: signal.SIGSEGV})
        assert said(found)[0] == ("died", Certainty.CERTAIN, 0)

    def test_a_kill_after_a_hang_is_not(self) -> None:
        job, ends = self.job(120 * SECOND_NS)
        found = found_in(job, **ends, signals={0: signal.SIGKILL})
        assert said(found)[0] == ("stopped", Certainty.CERTAIN, 2)


@pytest.mark.parametrize(("waited_ns", "certainty"), [(2, Certainty.HINT), (60_000, Certainty.CERTAIN)])
def test_who_was_killed_together_with_those_that_wait_did_not_stop_them(waited_ns: int, certainty: Certainty) -> None:
    """All of a container in one look: nobody knows who was first."""
    job = Job(4)
    job.steps(5)
    job.call(without={2}, done=False)
    killed = dict.fromkeys(job.ranks, int(signal.SIGKILL))
    found = found_in(
        job,
        waited_ns * MILLISECOND_NS,
        silent=frozenset(job.ranks),
        died_first=2,
        deaths_seen_late=True,
        signals=killed,
    )
    assert first_of(found, Died).certainty is Certainty.LIKELY
    assert first_of(found, Stopped).certainty is certainty


class TestWaitsEndWithRanks:
    """Launchers end the others when a rank has died, and supervisors note the end of a job later."""

    def job(self, first: int | None = None) -> Job:
        """Ranks 0 and 2 are in a call, that one perhaps before the other; rank 1 computes."""
        job = Job(3)
        job.steps(5)
        if first is not None:
            job.call(only={first}, done=False)
            job.now_ns += 3 * MILLISECOND_NS
        job.call(only={0, 2} - {first}, done=False)
        return job

    @pytest.mark.parametrize(("first", "number"), [(None, signal.SIGABRT), (2, signal.SIGKILL)])
    def test_who_never_joined_after_a_death_is_no_hang(self, first: int | None, number: int) -> None:
        job = self.job(first)
        died_ns = job.now_ns + 5 * MILLISECOND_NS
        gone = {0: died_ns, 1: died_ns + 100 * MILLISECOND_NS, 2: died_ns + 30 * SECOND_NS}
        signals = {0: int(number), 1: int(signal.SIGTERM), 2: int(signal.SIGKILL)}

        found = found_in(
            job, 32 * SECOND_NS, silent=frozenset(job.ranks), died_first=0, signals=signals, gone_wall_ns=gone
        )

        assert said(found) == [("died", Certainty.CERTAIN, 0), ("stopped", Certainty.HINT, 1)]

    def test_a_job_that_goes_on_after_its_ranks_waited_no_longer(self) -> None:
        job = self.job()
        gone = dict.fromkeys(job.ranks, job.now_ns + 5 * MILLISECOND_NS)

        found = found_in(job, 600 * SECOND_NS, silent=frozenset(job.ranks), gone_wall_ns=gone)

        stopped = first_of(found, Stopped)
        assert stopped.certainty is Certainty.HINT
        assert stopped.waited_ns is not None and stopped.waited_ns < 10 * MILLISECOND_NS

    def test_a_rank_that_fails_ends_the_wait_for_another(self) -> None:
        job = self.job(2)
        job.raises(0, "RuntimeError", "Application timeout caused pair closure")
        assert first_of(found_in(job, 60 * SECOND_NS), Stopped).certainty is Certainty.HINT

    def test_a_watchdog_that_ends_a_rank_after_its_wait_does_not(self) -> None:
        job = self.job()
        gone = dict.fromkeys(job.ranks, job.now_ns + 600 * SECOND_NS)
        signals = {0: int(signal.SIGABRT), 1: int(signal.SIGTERM), 2: int(signal.SIGTERM)}
        found = found_in(
            job, 601 * SECOND_NS, silent=frozenset(job.ranks), died_first=0, signals=signals, gone_wall_ns=gone
        )
        assert said(found) == [("stopped", Certainty.CERTAIN, 1), ("died", Certainty.CERTAIN, 0)]

    def test_by_a_clock_that_is_not_known_no_wait_ends(self) -> None:
        job = self.job()
        gone = {1: job.now_ns + MILLISECOND_NS}
        nodes = {0: "a", 1: "b", 2: "a"}
        found = found_in(
            job, 60 * SECOND_NS, gone_wall_ns=gone, nodes=nodes, unknown_clocks=frozenset({"b"}), silent=frozenset({1})
        )
        assert first_of(found, Stopped).certainty is Certainty.CERTAIN


class TestOutlivedExceptions:
    def job(self, rank: int, waits: set[int], world: int = 3) -> Job:
        """A rank prints an exception; a hundred steps later a call does not complete."""
        job = Job(world)
        job.steps(3)
        job.raises(rank, "ValueError", "printed")
        job.steps(100)
        job.call(only=waits, done=False)
        return job

    def test_it_is_not_why_a_rank_never_came(self) -> None:
        found = found_in(self.job(2, {0, 1}), 2 * MILLISECOND_NS)

        assert {certainty for _, certainty, _ in said(found)} == {Certainty.HINT}
        assert first_of(found, Stopped).absent[0].how is How.ELSEWHERE
        assert "rank 2 never joined it: it raised" not in text_of(found)

    def test_a_rank_that_printed_one_waits_on_a_device_too(self) -> None:
        job = self.job(0, {0}, world=2)
        put_on_device(job)
        assert ("stopped", Certainty.CERTAIN, 1) in said(found_in(job, 60 * SECOND_NS))

    def test_the_detector_sees_its_hang(self) -> None:
        job = self.job(0, {0}, world=2)
        hangs = HangDetector(60 * SECOND_NS)
        for rank, log in job.logs.items():
            hangs.feed(rank, log.groups["0"])
            hangs.feed(rank, whole_batch(columns_of(log)))
            events: list[Note | StepMark] = [*log.notes, *log.steps]
            for event in sorted(events, key=lambda event: event.time_ns):
                hangs.feed(rank, event)
        assert [report.never_came for report in hangs.due(job.now_ns + 1000 * SECOND_NS)] == [(1,)]

    def test_a_program_that_ends_with_code_0_has_outlived_it(self) -> None:
        job = Job(2)
        job.call()
        job.raises(0, "ValueError", "printed")
        job.exits()
        assert said(found_in(job)) == [("raised", Certainty.HINT, 0)]


def test_waits_for_another_cause_are_no_consequence() -> None:
    """Rank 1 raised and rank 3 is stuck: who waits for one has nothing to do with the other."""
    job = Job(4)
    job.group("left", (0, 1))
    job.group("right", (2, 3))
    job.steps(3)
    job.call(group="left", only={0}, done=False)
    job.call(group="right", only={2}, done=False)
    job.raises(1)

    found = found_in(job, 60 * SECOND_NS)

    stops = [verdict for verdict in found.verdicts if isinstance(verdict, Stopped)]
    assert {stop.ranks for stop in stops} == {(1, 0), (3, 2)}
    assert [stop.behind for stop in stops] == [(), ()]
    assert "as a consequence" not in text_of(found)


def test_the_words_for_a_rank_that_ended_itself_do_not_claim_more() -> None:
    job = Job(2)
    job.steps(2)
    found = found_in(job, silent=frozenset({0}), died_first=0, exit_codes={0: 0})
    assert found.verdicts[0].text == (
        "rank 0 exited with exit code 0, and its log has no end record: os._exit, or an exit in native code"
    )


def test_a_job_that_was_perhaps_told_to_end_gives_a_hint() -> None:
    job = Job(2)
    job.steps(2)
    more: dict[str, Any] = {"signals": {1: signal.SIGTERM}, "interrupted": True, "perhaps_told": True}
    found = found_in(job, silent=frozenset({1}), died_first=1, **more)
    assert said(found) == [("died", Certainty.HINT, 1)]
    assert any(line.startswith("perhaps the job was terminated") for line in found.verdicts[0].lines)


def test_a_note_of_a_later_exit_does_not_make_an_earlier_exit_vanish() -> None:
    job = Job(2)
    job.steps(2)
    job.note(1, "exit", code=None)
    job.logs[0].notes.append(Note("exit", job.now_ns, {"code": 7}))
    assert found_in(job).verdicts[0].text == "rank 0 exited with exit code 7"


def test_what_all_ranks_raise_at_one_place_is_told_once() -> None:
    """A wrong line fails on each of a thousand ranks: one traceback shows it."""
    job = Job(6)
    job.call()
    for rank in (1, 0, 2):
        job.raises(rank, "ValueError", "bad batch")
    job.raises(3, "ValueError", "bad batch of rank 3")
    job.raises(4, "KeyError", "another kind")
    elsewhere = ["Traceback (most recent call last):\n", '  File "/job/data.py", line 9, in load\n', "ValueError: no\n"]
    job.raises(5, "ValueError", "bad batch", traceback=elsewhere)
    found = found_in(job)
    assert [verdict.ranks for verdict in found.verdicts] == [(1, 0, 2, 3), (4,), (5,)]
    first = first_of(found, Raised)
    assert first.text.startswith("ranks 0, 1, 2 and 3 raised at 0.1: ValueError: bad batch")
    assert "rank 3 reported: bad batch of rank 3" in first.lines
    assert first.to_json()["others"] == {"3": "bad batch of rank 3"}
    assert text_of(found).count('"/job/train.py", line 7') == 2


def test_of_many_that_say_something_else_a_few_are_named() -> None:
    job = Job(8)
    job.call()
    for rank in range(8):
        job.raises(rank, "OutOfMemoryError", f"CUDA out of memory. GPU {rank}")
    first = first_of(found_in(job), Raised)
    assert len(first.ranks) == 8 and "4 more ranks reported other messages" in first.lines
    assert "rank 3 reported: CUDA out of memory. GPU 3" in first.lines


def raised_alike(*at_ms: float, calls: int = 0, ahead_ms: float = 0.0, **more: Any) -> Raised:
    """at_ms: when each rank raises the same, by its own clock; ahead_ms: the clock of the last."""
    job = Job(len(at_ms))
    for _ in range(calls or 1):
        job.call()
    last = len(at_ms) - 1
    job.logs[last].wall_offset_ns = round(ahead_ms * MILLISECOND_NS)
    for rank, ms in enumerate(at_ms):
        job.raises(rank)
        (note,) = job.logs[rank].notes
        job.logs[rank].notes[0] = replace(note, time_ns=job.now_ns + round(ms * MILLISECOND_NS))
    return first_of(found_in(job, **more), Raised)


def test_which_of_several_ranks_raised_first_is_said() -> None:
    first = raised_alike(900, 1400, 500)
    assert first.ranks == (2, 0, 1) and first.first_by_ns == 400 * MILLISECOND_NS - 2000
    assert "rank 2 raised it first, 400 ms before the others" in first.lines
    assert first.to_json()["first_by_ns"] == first.first_by_ns
    assert "rank 1 raised it first, 2.0 s before rank 0" in raised_alike(2500, 500).lines


@pytest.mark.parametrize(
    ("at_ms", "more"),
    [
        ((5, 9, 900), {}),  # one that waits for a CPU is later than it seems
        ((500, 900), {"emulated": "dp=2"}),
        ((500, 900), {"clocks_agree": False}),
        ((500, 900), {"ahead_ms": 20}),  # set between two starts, or of another machine that nobody told of
        ((500, 900), {"nodes": {0: "n1", 1: "n2"}}),  # with one collective in common
        ((500, 505), {"nodes": {0: "n1", 1: "n2"}, "calls": 20, "ahead_ms": 25}),
    ],
)
def test_nothing_is_said_of_the_first_where_clocks_do_not_tell(at_ms: tuple[float, ...], more: dict[str, Any]) -> None:
    first = raised_alike(*at_ms, **more)
    assert len(first.ranks) == len(at_ms) and first.first_by_ns == 0
    assert "raised it first" not in "\n".join(first.lines)


def test_ranks_of_several_nodes_are_compared_as_far_as_their_clocks_are_known() -> None:
    first = raised_alike(900, 500, 850, nodes={0: "n1", 1: "n1", 2: "n2"}, calls=20, ahead_ms=25)
    assert first.ranks == (1, 2, 0)
    assert "rank 1 raised it first, 375 ms before the others" in first.lines
