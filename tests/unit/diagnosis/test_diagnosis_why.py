"""`prismdbg why` from synthetic logs: each verdict, on whole and on partial evidence, and none where all is well."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.capsule.log.events import Note
from prismdbg.capsule.log.format import StepSource
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.diagnosis.evidence import Evidence, SeenIncident
from prismdbg.diagnosis.failures import Died, Raised
from prismdbg.diagnosis.lateness.delays import Delay, find_delays
from prismdbg.diagnosis.lateness.stragglers import LEAST_LATENESS_NS, Straggler
from prismdbg.diagnosis.match import MatchState
from prismdbg.diagnosis.mismatches import Mismatch, _GroupCalls, find_mismatches
from prismdbg.diagnosis.nonfinite import Birth, FirstNonfinite
from prismdbg.diagnosis.stops import How, Stopped
from prismdbg.diagnosis.verdict import Certainty, Verdict
from prismdbg.diagnosis.why import Diagnosis, diagnose
from prismdbg.model.collective import UNNAMED, Frame, Group, State
from prismdbg.model.moment import Moment
from tests.unit.logs import MILLISECOND_NS, WORLD, Job, Tensors, chain_of_waits, circle_of_waits, put_on_device

MINUTE_NS = 60_000 * MILLISECOND_NS
CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer"

V = TypeVar("V", bound=Verdict)


def evidence(
    job: Job, *, without: frozenset[int] = frozenset(), ended_after_ns: int = MINUTE_NS, **more: Any
) -> Evidence:
    logs = {rank: log for rank, log in job.logs.items() if rank not in without}
    return Evidence(logs=logs, world_size=len(job.ranks), ended_wall_ns=job.now_ns + ended_after_ns, **more)


def only(diagnosis: Diagnosis, kind: type[V]) -> V:
    (verdict,) = (verdict for verdict in diagnosis.verdicts if isinstance(verdict, kind))
    shown = words(verdict.brief, verdict.aside, verdict.short_aside)
    assert shown <= words(verdict.text, *verdict.lines), "a line says no more than why"
    return verdict


def words(*texts: str) -> set[str]:
    return {word for text in texts for word in re.findall(r"[\w.]+", text)} - {"by", "to", "rank", "ranks", "and"}


def test_of_emulated_ranks_nothing_is_said_of_values_and_of_waiting() -> None:
    job = Job(4)
    job.steps(5)
    job.call(without={2}, done=False)
    found = diagnose(evidence(job, without=frozenset({3}), emulated="dp=4"))
    assert found.verdicts == ()
    assert found.missing == (
        "3 of 4 ranks of dp=4 ran, each among virtual peers: the diagnosis does not cover the others",
        "the peers' data was synthesized: the diagnosis does not cover values or waits (see `prismdbg graph`)",
    )


class TestStopped:
    def test_who_never_came_and_what_it_did_instead(self) -> None:
        job = Job(4)
        job.steps(5)
        job.call(without={2}, done=False)

        stopped = only(diagnose(evidence(job)), Stopped)

        assert stopped.certainty is Certainty.CERTAIN
        assert stopped.ranks == (2, 0, 1, 3)
        assert (
            stopped.text
            == "ranks 0, 1 and 3 wait in all_reduce (group world #5, 5.1) for 60.0 s; rank 2 never joined it"
        )
        assert stopped.brief == "rank 2 never joined it: its log shows no error"
        assert stopped.aside == "ranks 0, 1 and 3 wait in all_reduce for 60.0 s"
        assert stopped.absent[0].how is How.ELSEWHERE
        assert stopped.lines[0] == (
            "rank 2 never joined it: its log shows no error; its last call: "
            "rank 2 at 4.1: all_reduce(float32[4], SUM) completed at /job/train.py:42 in main"
        )

    def test_a_rank_that_ended_by_itself(self) -> None:
        job = Job(2)
        job.steps(2)
        job.note(1, "exit", code=0)
        job.call(without={1}, done=False)

        stopped = only(diagnose(evidence(job, ended_after_ns=0)), Stopped)

        assert stopped.certainty is Certainty.CERTAIN
        assert (stopped.absent[0].how, stopped.absent[0].did) == (
            How.EXITED,
            "it exited with exit code 0",
        )

    def test_failed_collectives_count_as_waits(self) -> None:
        """After a timeout nothing is open any more: the ranks gave up."""
        job = Job(3)
        job.steps(1)
        job.call(without={2}, done=False)
        for rank in (0, 1):
            record = job.logs[rank].collectives[-1]
            gave_up_ns = record.time_created_ns + MINUTE_NS
            job.logs[rank].collectives[-1] = replace(record, state=State.FAILED, time_completed_ns=gave_up_ns)

        stopped = only(diagnose(evidence(job, ended_after_ns=2 * MINUTE_NS)), Stopped)

        assert stopped.text.startswith("ranks 0 and 1 failed in all_reduce (group world #1, 1.1) after 60.0 s")

    def test_only_the_cause_of_a_chain(self) -> None:
        stopped = only(diagnose(evidence(chain_of_waits())), Stopped)

        assert stopped.stall.group.name == "right"
        assert stopped.ranks == (2, 1)
        assert stopped.behind == (0,)

    def test_a_circle_is_told_once(self) -> None:
        stopped = only(diagnose(evidence(circle_of_waits())), Stopped)

        assert stopped.certainty is Certainty.CERTAIN and sorted(stopped.ranks) == [0, 1]
        assert stopped.text == (
            "ranks 0 and 1 wait for each other for 60.0 s: rank 0 in all_reduce (group a #0, 0.1) and "
            "rank 1 in all_reduce (group b #0, 0.1)"
        )
        assert [line.partition(":")[0] for line in stopped.lines] == ["rank 0 at 0.1", "rank 1 at 0.1"]
        assert stopped.brief == "ranks 0 and 1 wait for each other" and stopped.aside == "for 60.0 s"
        assert stopped.behind == ()

    def test_a_pipeline_that_leaves_out_a_message(self) -> None:
        """Rank 1 waits for the message that rank 2 leaves out, and rank 2 for the next one of rank 1."""
        job = Job(3)
        job.steps(2)
        job.point_to_point(1, 0, sent=False, done=False)
        job.point_to_point(2, 1, sent=False, done=False)
        job.point_to_point(1, 2, sent=False, done=False)

        stopped = only(diagnose(evidence(job)), Stopped)

        assert stopped.text.startswith(
            "ranks 1 and 2 wait for each other for 60.0 s: rank 1 in recv (group world 2 to 1"
        )

    def test_two_that_wait_for_one_are_told_once(self) -> None:
        job = Job(3)
        job.steps(2)
        job.point_to_point(1, 0, sent=False, done=False)
        job.point_to_point(1, 2, sent=False, done=False)

        stopped = only(diagnose(evidence(job)), Stopped)

        assert stopped.ranks == (1, 0) and stopped.behind == (2,)

    def test_a_message_that_was_never_sent(self) -> None:
        job = Job(2)
        job.point_to_point(0, 1)
        job.point_to_point(0, 1, sent=False, done=False)

        stopped = only(diagnose(evidence(job)), Stopped)

        assert stopped.ranks == (0, 1)
        assert "group world 0 to 1 tag 0 #1" in stopped.text

    def test_the_end_of_a_job_is_no_hang(self) -> None:
        job = Job(4)
        job.steps(5)
        job.call(without={2}, done=False)

        stopped = only(diagnose(evidence(job, ended_after_ns=2 * MILLISECOND_NS)), Stopped)

        assert stopped.certainty is Certainty.HINT
        assert "waited here only because the job ended" in stopped.lines[-1]

    def test_a_call_that_failed_at_once_did_not_wait_for_the_end_of_the_job(self) -> None:
        job = Job(2)
        job.steps(5)
        job.call(done=False)
        for rank in (0, 1):
            call = job.logs[rank].collectives[-1]
            failed = replace(call, state=State.FAILED, time_completed_ns=call.time_created_ns + MILLISECOND_NS)
            job.logs[rank].collectives[-1] = failed

        stopped = only(diagnose(evidence(job, ended_after_ns=2 * MILLISECOND_NS)), Stopped)

        assert stopped.certainty is Certainty.HINT and "failed in" in stopped.text
        assert "the program may have caught its error" in stopped.lines[-1]

    def test_while_the_job_runs_a_short_wait_is_nothing(self) -> None:
        job = Job(4)
        job.steps(5)
        job.call(without={2}, done=False)

        assert diagnose(evidence(job, ended_after_ns=MILLISECOND_NS, is_running=True)).verdicts == ()

    @pytest.mark.parametrize(
        ("waited_s", "step_s", "certainty"),
        [(1.3, 0, Certainty.HINT), (61, 0, Certainty.CERTAIN), (61, 25, Certainty.HINT), (601, 600, Certainty.CERTAIN)],
    )
    def test_while_the_job_runs_a_pause_is_no_hang(self, waited_s: float, step_s: int, certainty: Certainty) -> None:
        """As `record` decides it: from a minute on, and three times the longest step, but for ten minutes."""
        job = Job(4)
        job.steps(50)
        job.steps(1, lasting_ns=step_s * 1000 * MILLISECOND_NS)
        job.call(without={0}, done=False)

        ended_after_ns = int(waited_s * 1000 * MILLISECOND_NS)
        stopped = only(diagnose(evidence(job, ended_after_ns=ended_after_ns, is_running=True)), Stopped)

        assert stopped.certainty is certainty
        so_far = certainty is Certainty.HINT
        joined = "has not joined it so far" if so_far else "never joined it"
        assert stopped.text.endswith(f"; rank 0 {joined}") and stopped.lines[0].startswith(f"rank 0 {joined}: ")
        assert any("not long enough to be called a hang" in line for line in stopped.lines) is so_far

    @pytest.mark.parametrize(("paused_s", "certainty"), [(25, Certainty.HINT), (15, Certainty.CERTAIN)])
    def test_so_is_a_pause_as_there_were_before_where_nobody_marks_steps(
        self, paused_s: int, certainty: Certainty
    ) -> None:
        job = Job(4)
        for _ in range(3):
            job.call()
            job.now_ns += paused_s * 1000 * MILLISECOND_NS
        job.call(without={0}, done=False)
        found = diagnose(evidence(job, ended_after_ns=61_000 * MILLISECOND_NS, is_running=True))
        assert only(found, Stopped).certainty is certainty

    def test_what_was_recorded_as_a_hang_is_one(self) -> None:
        job = Job(4)
        job.steps(5)
        job.call(without={0}, done=False)
        hang = Incident(kind=IncidentKind.HANG, text="ranks 1, 2 and 3 waited 5 s", moment=Moment(5, 1))
        seen = SeenIncident(incident=hang, ranks=(0,), attempt=0)

        found = diagnose(evidence(job, ended_after_ns=6000 * MILLISECOND_NS, is_running=True, incidents=(seen,)))

        assert only(found, Stopped).certainty is Certainty.CERTAIN

    def test_a_rank_that_is_gone_does_not_come_any_more(self) -> None:
        job = Job(4)
        job.steps(5)
        job.raises(0)
        job.call(without={0}, done=False)
        found = diagnose(evidence(job, ended_after_ns=2000 * MILLISECOND_NS, is_running=True))
        assert only(found, Stopped).certainty is Certainty.CERTAIN


class TestPartialEvidence:
    def test_a_missing_log_is_said_and_not_accused(self) -> None:
        job = Job(4)
        job.steps(2)
        job.call(without={2}, done=False)

        diagnosis = diagnose(evidence(job, without=frozenset({2})))

        stopped = only(diagnosis, Stopped)
        assert stopped.absent == ()
        assert stopped.stall.unknown == (2,)
        assert stopped.certainty is not Certainty.CERTAIN
        assert diagnosis.missing == ("no log of rank 2: it was not recorded, or issued no collective",)

    def test_a_block_that_was_never_ended_is_said(self) -> None:
        job = Job(2)
        job.steps(2)
        job.note(1, "not_ended", text="a coalescing block of group 0 was never ended")

        assert diagnose(evidence(job)).missing == ("rank 1: a coalescing block of group 0 was never ended",)

    def test_a_log_that_breaks_off_is_not_held_to_what_it_lacks(self) -> None:
        job = Job(2)
        job.steps(2)
        job.calls(1).pop()
        job.call(without={1}, done=False)

        diagnosis = diagnose(evidence(job, damaged={1: "offset 512"}))

        assert only(diagnosis, Stopped).stall.never_came == ()
        assert diagnosis.missing == ("the log of rank 1 breaks off: offset 512",)

    def test_a_log_without_its_beginning(self) -> None:
        job = Job(2)
        job.steps(3)
        del job.calls(0)[:2]

        assert diagnose(evidence(job)).missing == ("the log of rank 0 begins after 2 collectives",)

    def test_nothing_at_all(self) -> None:
        diagnosis = diagnose(Evidence(logs={}, damaged={0: "it is empty"}))

        assert diagnosis.verdicts == ()
        assert diagnosis.missing[0] == "the log of rank 0 cannot be read: it is empty"


class TestFailures:
    def test_the_exception_that_was_first_and_those_that_followed(self) -> None:
        job = Job(3)
        job.steps(4)
        job.raises(1, "UnicodeDecodeError", "bad byte\nmore")
        job.call(without={1}, done=False)
        job.raises(0, "RuntimeError", CLOSED)
        job.raises(2, "RuntimeError", CLOSED)

        diagnosis = diagnose(evidence(job, ended_after_ns=0))

        raised = only(diagnosis, Raised)
        assert raised.certainty is Certainty.CERTAIN
        assert raised.text == "rank 1 raised at 4.0: UnicodeDecodeError: bad byte"
        assert raised.followers == (0, 2)
        assert str(raised.moment) == "4.0"
        assert raised.lines[0] == "Traceback (most recent call last):"
        stopped = only(diagnosis, Stopped)
        assert stopped.absent[0].how is How.RAISED
        assert diagnosis.verdicts[0] is raised  # the cause first

    def test_a_paragraph_is_not_said_in_a_sentence(self) -> None:
        """torch tells in one line what was asked for, what is left, what to read; it stands whole in the traceback."""
        job = Job(2)
        job.steps(3)
        job.raises(1, "OutOfMemoryError", "out of memory: you tried to allocate 512 bytes. " + "All is in use. " * 40)
        job.call(without={1}, done=False)

        diagnosis = diagnose(evidence(job, ended_after_ns=0))

        said = only(diagnosis, Raised).text
        assert said.startswith(
            "rank 1 raised at 3.0: OutOfMemoryError: out of memory: you tried to allocate 512 bytes."
        )
        assert said.endswith(" ...") and len(said) < 220
        assert len(only(diagnosis, Stopped).absent[0].did) < 220

    def test_all_gave_up_inside_a_collective(self) -> None:
        job = Job(3)
        job.call(without={2}, done=False)
        job.raises(1, "RuntimeError", "Timed out waiting")
        job.raises(0, "RuntimeError", "Timed out waiting")

        raised = only(diagnose(evidence(job, silent=frozenset({2}))), Raised)

        assert raised.certainty is Certainty.LIKELY
        assert raised.ranks == (1,)
        assert raised.inside is not None

    def test_a_rank_that_was_killed(self) -> None:
        job = Job(3)
        job.steps(2)
        job.call(without={2}, done=False)
        job.raises(0, "RuntimeError", CLOSED)

        diagnosis = diagnose(evidence(job, silent=frozenset({2})))

        died = only(diagnosis, Died)
        assert died.ranks == (2,)
        assert died.certainty is Certainty.LIKELY
        assert died.followers == (0,)
        assert only(diagnosis, Stopped).absent[0].how is How.DIED

    @pytest.mark.parametrize("rank", [0, 2])
    def test_an_exception_of_a_thread_that_its_program_outlived_is_no_cause_of_a_death(self, rank: int) -> None:
        """That of a library which reports to a server, say."""
        job = Job(3)
        job.steps(1)
        job.raises(rank, "ValueError", "the server is gone", thread=True)
        job.steps(3)
        job.call(without={2}, done=False)

        diagnosis = diagnose(evidence(job, silent=frozenset({0, 1, 2}), died_first=2))

        died, raised = only(diagnosis, Died), only(diagnosis, Raised)
        assert (died.ranks, died.certainty) == ((2,), Certainty.CERTAIN)
        assert (raised.ranks, raised.certainty) == ((rank,), Certainty.HINT)
        assert "the program continued after it" in raised.lines
        assert diagnosis.verdicts[0] is died

    def test_nor_of_an_exception_that_ended_its_program(self) -> None:
        job = Job(2)
        job.steps(1)
        job.raises(0, "ValueError", "the server is gone", thread=True)
        job.steps(3)
        job.raises(1, "KeyError", "the cause")

        found = [verdict for verdict in diagnose(evidence(job)).verdicts if isinstance(verdict, Raised)]

        assert [(v.type_name, v.certainty) for v in found] == [
            ("KeyError", Certainty.CERTAIN),
            ("ValueError", Certainty.HINT),
        ]

    def test_nor_is_one_that_the_program_printed_and_went_on(self) -> None:
        job = Job(2)
        job.steps(1)
        job.raises(0, "ValueError", "printed")
        job.steps(3)

        diagnosis = diagnose(evidence(job, silent=frozenset({0, 1}), died_first=1))

        assert only(diagnosis, Died).ranks == (1,)
        assert only(diagnosis, Raised).certainty is Certainty.HINT

    @pytest.mark.parametrize("more", [{}, {"thread": True}])
    def test_exceptions_of_one_place_that_were_outlived_are_one_verdict(self, more: dict[str, Any]) -> None:
        """A library loses a thread to its server every minute, or the program prints an exception in each step."""
        job = Job(2)
        for number in range(1000):
            job.raises(1, "OSError", f"no answer after {number} ms", **more)
            job.steps(1)
        job.raises(1, "ValueError", "another", **more)
        job.steps(1)

        found = [verdict for verdict in diagnose(evidence(job)).verdicts if isinstance(verdict, Raised)]

        assert [(v.type_name, v.moment, v.was_outlived) for v in found] == [
            ("OSError", Moment(0), True),
            ("ValueError", Moment(1000), True),
        ]
        assert "raised 1000 times, last at 999.0; the program continued after each" in found[0].lines
        assert found[0].details()["times"] == 1000 and "the program continued after it" in found[1].lines

    def test_those_that_a_rank_noted_without_a_traceback_belong_to_the_first(self) -> None:
        job = Job(2)
        job.steps(1)
        job.raises(0, "OSError", "first", place=1, nth=1)
        job.steps(1)
        job.raises(0, "OSError", "last", place=1, nth=4000, traceback=None)
        job.steps(1)
        job.raises(0, "OSError", "the cause", place=1, nth=4001, traceback=None)

        cause, outlived = diagnose(evidence(job)).verdicts

        assert isinstance(cause, Raised) and isinstance(outlived, Raised)
        assert cause.certainty is Certainty.CERTAIN and cause.message == "the cause"
        assert cause.traceback.splitlines()[1:] == ['  File "/job/train.py", line 7, in main', "OSError: the cause"]
        assert (outlived.message, outlived.times) == ("first", 4000) and outlived.traceback.endswith("OSError: first\n")

    def test_a_number_without_a_place_counts_nothing(self) -> None:
        job = Job(2)
        job.raises(0, "OSError", "no answer", nth=5)
        job.steps(1)

        (outlived,) = diagnose(evidence(job)).verdicts

        assert isinstance(outlived, Raised) and outlived.was_outlived and outlived.times == 1

    def test_an_exception_of_a_thread_that_was_the_last_thing_may_be_the_cause(self) -> None:
        job = Job(2)
        job.steps(3)
        job.raises(1, "ValueError", "no more data", thread=True)

        raised = only(diagnose(evidence(job)), Raised)

        assert (raised.certainty, raised.was_outlived) == (Certainty.CERTAIN, False)

    def test_a_rank_that_was_seen_to_die_first(self) -> None:
        job = Job(3)
        job.steps(2)
        job.call(without={2}, done=False)

        diagnosis = diagnose(evidence(job, silent=frozenset({0, 1, 2}), died_first=2))

        assert only(diagnosis, Died).certainty is Certainty.CERTAIN
        assert diagnosis.missing == ("ranks 0 and 1 ended without an error message: ended by the launcher, or killed",)


def scaled_steps(job: Job, parts: Sequence[tuple[str, int]]) -> None:
    """Under a gradient scaler, which skips the steps in which rank 1 sends NaN or Inf."""
    for part, count in parts:
        for _ in range(count):
            overflows = part == "overflows"
            job.call(sends_nan={1} if overflows else (), receives_nan=job.ranks if overflows else ())
            for rank in job.ranks:
                job.next_step(rank)
                if overflows:
                    marks = job.logs[rank].steps
                    marks[-1] = replace(marks[-1], source=StepSource.SKIPPED_BY_SCALER)


class TestNonfinite:
    def test_a_second_optimizer_that_was_skipped_is_told_as_one_of_several(self) -> None:
        job = Job(2)
        job.steps(3)
        job.call(sends_nan={1}, receives_nan=job.ranks)
        for rank in job.ranks:
            job.next_step(rank)
            job.logs[rank].notes.append(Note("skipped", job.now_ns, {"step": 3}))
        job.steps(2)

        nan = only(diagnose(evidence(job)), FirstNonfinite)

        assert nan.was_skipped and nan.was_another and not nan.lasted
        assert "skipped one of its optimizers at the end of step 3" in nan.lines[-1]
        assert "that optimizer's parameters did not change" in nan.lines[-1]

    def test_who_sent_it_and_who_only_received_it(self) -> None:
        job = Job(4)
        job.steps(3)
        stack = (Frame("/x/site-packages/torch/distributed/distributed_c10d.py", 1, "f"), Frame("t.py", 9, "main"))
        job.call(sends_nan={2}, receives_nan=job.ranks, frames=stack)
        job.call(sends_nan=job.ranks, receives_nan=job.ranks)

        nan = only(diagnose(evidence(job)), FirstNonfinite)

        assert nan.certainty is Certainty.CERTAIN
        assert nan.birth is Birth.SENT
        assert nan.text == "rank 2 sent the first NaN or Inf: all_reduce (group world #3, 3.1) at t.py:9 in main"
        assert [call.rank for call in nan.received] == [0, 1, 3]
        assert nan.others == ()

    def test_what_comes_after_an_overflow_that_a_scaler_got_over_is_named_first(self) -> None:
        job = Job(2)
        scaled_steps(job, [("overflows", 2), ("is fine", 3), ("overflows", 1), ("is fine", 1), ("overflows", 3)])

        lasting, overflow = (v for v in diagnose(evidence(job)).verdicts if isinstance(v, FirstNonfinite))

        assert (str(lasting.moment), lasting.certainty, lasting.lasted) == ("7.1", Certainty.CERTAIN, True)
        assert lasting.lines[-1].endswith("and it took no step after that")
        assert (str(overflow.moment), overflow.certainty) == ("0.1", Certainty.HINT)
        assert overflow.lines[-1].startswith(
            "later, in step 5, which was skipped, too: rank 1 sent the first NaN or Inf"
        )

    def test_overflows_that_a_scaler_got_over_are_one_verdict_of_bounded_length(self) -> None:
        job = Job(2)
        scaled_steps(job, [("overflows", 1), ("is fine", 1)] * 9)

        nan = only(diagnose(evidence(job)), FirstNonfinite)

        assert (str(nan.moment), nan.lasted, len(nan.later)) == ("0.1", False, 4)
        assert nan.lines[-1] == "4 more skipped steps with NaN or Inf came after steps that were taken"

    def test_on_a_device_a_call_is_issued_long_before_it_sends(self) -> None:
        """Rank 0's host is two calls ahead when rank 1 sends NaN in the first of them."""
        job = Job(2)
        job.steps(2)
        job.call(sends_nan={1}, receives_nan={0, 1})
        job.call(sends_nan={0, 1}, receives_nan={0, 1})
        begun, ended = {0: (1, 2), 1: (10, 11)}, (12, 13)
        for rank, log in job.logs.items():
            for call in range(2):
                record = log.collectives[call - 2]
                log.collectives[call - 2] = replace(
                    record,
                    inputs=tuple(replace(meta, device="cuda:0") for meta in record.inputs),
                    time_created_ns=job.now_ns + begun[rank][call] * MILLISECOND_NS,
                    time_completed_ns=job.now_ns + ended[call] * MILLISECOND_NS,
                )

        nan = only(diagnose(evidence(job)), FirstNonfinite)

        assert (nan.call.rank, nan.certainty) == (1, Certainty.CERTAIN)
        assert [call.rank for call in nan.received] == [0]

    def test_nothing_is_concluded_from_what_stands_on_a_made_up_answer(self) -> None:
        """Rank 2 sends a NaN after peers that were not there had answered it; rank 1 sent one before."""
        job = Job(3)
        job.steps(2)
        job.call(sends_nan={2})
        for log in (job.logs[2], job.logs[0]):
            log.collectives[0] = replace(log.collectives[0], synthesized=True, received_nonfinite=True)
        assert not [v for v in diagnose(evidence(job)).verdicts if isinstance(v, FirstNonfinite)]

        job.call(sends_nan={1})
        assert only(diagnose(evidence(job)), FirstNonfinite).ranks[0] == 1

    def test_values_with_which_pipelining_learns_shapes_are_not_looked_at(self) -> None:
        """They are what happened to be in memory: torch's pipelining runs each stage once with them."""
        job = Job(3)
        job.call(sends_nan={1}, receives_nan={0, 1, 2})
        place = "/v/lib/python3.11/site-packages/torch/distributed/pipelining/stage.py"
        learns = Frame(place, 1945, "_forward_metadata_inference")
        for log in job.logs.values():
            log.collectives[0] = replace(log.collectives[0], frames=(*log.collectives[0].frames, learns))
        job.steps(2)
        assert not [v for v in diagnose(evidence(job)).verdicts if isinstance(v, FirstNonfinite)]

        job.call(sends_nan={2})
        assert only(diagnose(evidence(job)), FirstNonfinite).ranks[0] == 2

    def test_the_earliest_of_several(self) -> None:
        job = Job(3)
        job.steps(1)
        job.call(sends_nan={1})
        job.steps(1)
        job.call(sends_nan={0})

        nan = only(diagnose(evidence(job)), FirstNonfinite)

        assert nan.ranks == (1, 0)
        assert nan.certainty is Certainty.CERTAIN

    def test_several_in_one_step_are_not_told_apart(self) -> None:
        job = Job(3)
        job.call(sends_nan={0, 1, 2}, receives_nan=job.ranks)

        nan = only(diagnose(evidence(job)), FirstNonfinite)

        assert nan.certainty is Certainty.LIKELY
        assert {call.rank for call in nan.others} == {1, 2}

    @pytest.mark.parametrize(("op", "certainty"), [("allgather_", Certainty.CERTAIN), ("allreduce_", Certainty.LIKELY)])
    def test_it_came_from_the_rank_without_a_log(self, op: str, certainty: Certainty) -> None:
        """A sum of finite values may overflow."""
        job = Job(3)
        job.steps(1)
        job.call(op, sends_nan={2}, receives_nan=job.ranks)
        job.call(sends_nan=job.ranks, receives_nan=job.ranks)

        nan = only(diagnose(evidence(job, without=frozenset({2}))), FirstNonfinite)

        assert nan.birth is Birth.UNSEEN
        assert nan.ranks == (2,)
        assert nan.certainty is certainty
        assert ("the reduction itself may have overflowed" in nan.lines) is (certainty is Certainty.LIKELY)

    def test_an_operator_that_is_not_recorded_leaves_a_doubt(self) -> None:
        job = Job(3)
        job.steps(3)
        job.note(1, "unknown", op="my_recv", text="an operator of the program")
        job.call(sends_nan={1}, receives_nan=job.ranks)

        nan = only(diagnose(evidence(job)), FirstNonfinite)

        assert (nan.ranks, nan.certainty) == ((1,), Certainty.LIKELY)
        assert any("some data sent earlier was not checked" in line for line in nan.lines)

    def test_data_that_a_device_had_no_room_to_look_at_leaves_a_doubt(self) -> None:
        job = Job(4)
        job.steps(5)
        job.point_to_point(2, 3)
        job.call(sends_nan={3}, receives_nan=job.ranks)
        put_on_device(job)
        assert only(diagnose(evidence(job)), FirstNonfinite).certainty is Certainty.CERTAIN
        job.logs[2].collectives = [
            replace(call, fingerprint=None) if call.is_p2p else call for call in job.logs[2].collectives
        ]

        nan = only(diagnose(evidence(job)), FirstNonfinite)

        assert (nan.ranks, nan.certainty) == ((3,), Certainty.LIKELY)

    def test_steps_that_are_not_counted_alike_order_nothing(self) -> None:
        """Of reinforcement learning: the critic takes two steps where the actor takes one."""
        job = Job(4)
        job.group("actor", (0, 1))
        job.group("critic", (2, 3))
        for _ in range(10):
            job.call(group="actor")
            job.call(group="critic")
            for rank in (0, 1, 2, 2, 3, 3):
                job.next_step(rank)
        job.call(group="critic", sends_nan={2}, receives_nan={2, 3})
        job.now_ns += 60_000_000_000
        job.call(group="actor", sends_nan={0}, receives_nan={0, 1})

        nan = only(diagnose(evidence(job)), FirstNonfinite)

        assert (nan.ranks, nan.certainty) == ((2, 0), Certainty.LIKELY)

    def test_finite_values_whose_sum_is_not(self) -> None:
        job = Job(2)
        job.call(receives_nan=job.ranks)

        assert only(diagnose(evidence(job)), FirstNonfinite).birth is Birth.REDUCED

    def test_a_pruned_log_leaves_a_doubt(self) -> None:
        job = Job(2)
        job.steps(2)
        job.call(sends_nan={0})
        del job.calls(1)[:1]

        nan = only(diagnose(evidence(job)), FirstNonfinite)

        assert nan.certainty is Certainty.LIKELY
        assert nan.suspects == (1,)
        assert "the logs of rank 1 do not start at the beginning: these ranks may have sent it earlier" in nan.lines

    def test_a_log_that_is_not_here_is_not_said_to_start_late(self) -> None:
        job = Job(3)
        job.call(sends_nan={0})
        del job.logs[1]

        nan = only(diagnose(evidence(job)), FirstNonfinite)

        assert "the logs of rank 1 are not here: these ranks may have sent it earlier" in nan.lines


class TestMismatches:
    def mismatch(self, job: Job) -> Mismatch:
        return only(diagnose(evidence(job)), Mismatch)

    def test_another_collective(self) -> None:
        job = Job(3)
        job.steps(1)
        job.call(only={0, 2}, done=False)
        job.call("_allgather_base_", only={1}, done=False)

        mismatch = self.mismatch(job)

        assert mismatch.state is MatchState.COLLECTIVE_TYPE_MISMATCH
        assert mismatch.ranks == (1,)
        assert [call.rank for call in mismatch.calls] == [1, 0, 2]
        assert mismatch.text == (
            "rank 1 issued a different call in group world #1: "
            "all_gather_into_tensor instead of all_reduce (COLLECTIVE_TYPE_MISMATCH)"
        )

    @pytest.mark.parametrize(
        ("tensors", "state", "difference"),
        [
            (Tensors(shape=(5,)), MatchState.SIZE_OR_SYNTAX_MISMATCH, "input elements 5 instead of 4"),
            (Tensors(dtype="float16"), MatchState.COLLECTIVE_DTYPE_MISMATCH, "float16 instead of float32"),
        ],
    )
    def test_other_tensors(self, tensors: Tensors, state: MatchState, difference: str) -> None:
        job = Job(3)
        job.call(without={1})
        job.call(only={1}, tensors=tensors)

        mismatch = self.mismatch(job)

        assert (mismatch.state, mismatch.difference, mismatch.ranks) == (state, difference, (1,))

    def test_another_root(self) -> None:
        job = Job(3)
        job.call("broadcast_", root=0, without={2})
        job.call("broadcast_", root=1, only={2})

        assert self.mismatch(job).difference == "root 1 instead of 0"

    def test_two_ranks_disagree_and_nobody_is_blamed(self) -> None:
        job = Job(2)
        job.call(only={0})
        job.call("barrier", only={1})

        mismatch = self.mismatch(job)

        assert not mismatch.has_majority
        assert mismatch.text.startswith("the ranks do not agree in group world #0")
        assert set(mismatch.ranks) == {0, 1}

    def test_a_call_that_was_left_out(self) -> None:
        job = Job(3)
        job.steps(1)
        job.call(without={1})
        for n in range(5):
            job.call(tensors=Tensors(shape=(10 + n,)))

        mismatch = self.mismatch(job)

        assert mismatch.key.seq == 1
        assert mismatch.shift == 1
        assert mismatch.later == 4
        assert "rank 1 seems to have skipped a call: later calls match again" in mismatch.lines

    def test_a_call_too_many(self) -> None:
        job = Job(3)
        job.call(only={1})
        for n in range(5):
            job.call(tensors=Tensors(shape=(10 + n,)))

        assert self.mismatch(job).shift == -1

    def test_shapes_of_as_many_elements_match(self) -> None:
        job = Job(2)
        job.call(only={0}, tensors=Tensors(shape=(2, 2)))
        job.call(only={1}, tensors=Tensors(shape=(4,)))

        assert diagnose(evidence(job)).verdicts == ()

    @pytest.mark.parametrize(
        ("op", "sides"),
        [
            ("alltoall_base_", ("inputs", "outputs")),
            ("alltoall_", ("inputs", "outputs")),
            ("scatter_", ("inputs",)),
            ("gather_", ("outputs",)),
            ("allgather_", ("inputs",)),
            ("reduce_scatter_", ("outputs",)),
        ],
    )
    def test_what_may_differ_from_rank_to_rank_is_no_mismatch(self, op: str, sides: tuple[str, ...]) -> None:
        job = Job(2)
        job.call(op)
        (record,) = job.logs[1].collectives
        other: dict[str, Any] = dict.fromkeys(sides, Tensors(shape=(9,)).metas)
        job.logs[1].collectives[0] = replace(record, **other)

        assert diagnose(evidence(job)).verdicts == ()

    @pytest.mark.parametrize(("op", "decoded"), [("alltoall_", 0), ("scatter_", 2)])
    def test_what_may_differ_in_each_call_is_decoded_once_at_most(
        self, op: str, decoded: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = Job(2)
        for number in range(50):
            job.call(op, root=0)
            for rank, log in job.logs.items():
                tensors = Tensors(shape=(number % 2 + 2 * rank + 1,)).metas
                log.collectives[-1] = replace(log.collectives[-1], inputs=tensors)
        asked: list[object] = []
        calls = _GroupCalls.calls
        monkeypatch.setattr(_GroupCalls, "calls", lambda self, place: asked.append(place) or calls(self, place))

        assert find_mismatches(evidence(job)) == [] and len(asked) == decoded

    def test_another_element_type_is_wrong_also_where_sizes_are_free(self) -> None:
        job = Job(2)
        for _ in range(3):
            job.call("alltoall_")
        job.calls(1)[1] = replace(job.calls(1)[1], inputs=Tensors(shape=(9,), dtype="float16").metas)
        job.calls(1)[1] = replace(job.calls(1)[1], outputs=Tensors(shape=(9,), dtype="float16").metas)
        assert self.mismatch(job).state is MatchState.COLLECTIVE_DTYPE_MISMATCH


class TestConsequencesOfMismatches:
    """Rank 1 passes another shape in the fifth collective, and its process is aborted there."""

    @staticmethod
    def _job() -> Job:
        job = Job(2)
        for _ in range(4):
            job.call()
        job.call(done=False)  # the last one
        record = job.logs[1].collectives[-1]
        job.logs[1].collectives[-1] = replace(record, inputs=Tensors(shape=(9,)).metas)
        return job

    def test_the_mismatch_is_told_before_the_death_in_it_and_that_both_came_is_not_told(self) -> None:
        found = diagnose(evidence(self._job(), silent=frozenset({0, 1}), died_first=1)).verdicts
        assert [verdict.kind for verdict in found] == ["mismatch", "died"]

    def test_an_exception_in_it_is_told_after_it(self) -> None:
        job = self._job()
        job.raises(1, "RuntimeError", "op.preamble.length <= op.nbytes")
        found = diagnose(evidence(job, silent=frozenset({0}))).verdicts
        assert [verdict.kind for verdict in found][:2] == ["mismatch", "raised"]

    def test_a_death_elsewhere_keeps_its_place(self) -> None:
        job = Job(2)
        job.call()
        record = job.logs[1].collectives[-1]
        job.logs[1].collectives[-1] = replace(record, inputs=Tensors(shape=(9,)).metas)
        job.call()
        job.call(without={1}, done=False)
        found = diagnose(evidence(job, silent=frozenset({0, 1}), died_first=1)).verdicts
        assert [verdict.kind for verdict in found] == ["mismatch", "died", "stopped"]


class TestStragglers:
    def test_the_rank_for_which_the_others_wait(self) -> None:
        job = Job(4)
        for _ in range(10):
            job.call(late_ns={3: 5 * MILLISECOND_NS})

        straggler = only(diagnose(evidence(job)), Straggler)

        assert straggler.ranks == (3,)
        assert straggler.text == "rank 3 came last in 10 of 10 collectives of group world, by 5.0 ms: 85% of the time"
        assert straggler.certainty is Certainty.HINT

    def test_clocks_of_other_machines_do_not_matter(self) -> None:
        job = Job(4)
        for _ in range(10):
            job.call(late_ns={3: 5 * MILLISECOND_NS})
        job.logs[3].wall_offset_ns = -MINUTE_NS
        for i, call in enumerate(job.logs[3].collectives):
            shifted = replace(
                call, time_created_ns=call.time_created_ns + 7, time_completed_ns=(call.time_completed_ns or 0) + 7
            )
            job.logs[3].collectives[i] = shifted

        assert only(diagnose(evidence(job)), Straggler).ranks == (3,)

    def test_turns_are_not_stragglers(self) -> None:
        job = Job(4)
        for n in range(12):
            job.call(late_ns={n % 4: 5 * MILLISECOND_NS})

        assert diagnose(evidence(job)).verdicts == ()

    def test_little_of_the_time_is_none(self) -> None:
        job = Job(4)
        for _ in range(10):
            job.call(late_ns={3: 5 * MILLISECOND_NS})
            job.now_ns += 100 * MILLISECOND_NS

        assert diagnose(evidence(job)).verdicts == ()

    def test_waits_for_a_rank_that_was_parked_are_none(self) -> None:
        job = Job(4)
        for _ in range(20):
            job.note(3, "parked")
            job.note(3, "released")
            job.call(late_ns={3: 50 * MILLISECOND_NS})
            job.steps(1)

        assert diagnose(evidence(job)).verdicts == ()


class TestDelays:
    def test_a_rank_that_is_always_late_to_another_group_hides_none(self) -> None:
        job = Job(4)
        job.group("pair", (0, 1))
        for step in range(60):
            for _ in range(2):
                job.call(group="pair", late_ns={1: 2 * MILLISECOND_NS})
            job.call(late_ns={3: 40 * MILLISECOND_NS} if step >= 45 else {})
            for rank in job.ranks:
                job.next_step(rank)
        found = [v for v in diagnose(evidence(job)).verdicts if isinstance(v, Delay | Straggler)]
        assert [(v.kind, v.ranks, v.group.name) for v in found] == [("delay", (3,), WORLD), ("straggler", (1,), "pair")]

    def test_a_rank_that_is_always_late_is_told_once(self) -> None:
        job = Job(4)
        for step in range(30):
            job.call(late_ns={3: (20 if step < 5 else 60) * MILLISECOND_NS})
            for rank in job.ranks:
                job.next_step(rank)
        assert find_delays(evidence(job))
        assert only(diagnose(evidence(job)), Straggler).ranks == (3,)
        assert not [v for v in diagnose(evidence(job)).verdicts if isinstance(v, Delay)]

    def slowed(self, rank: int = 2, delays: int = 6) -> Job:
        """Three collectives a step; the rank is late to the first of each in the last steps."""
        job = Job(4)
        job.call(late_ns={1: 900 * MILLISECOND_NS})  # somebody started later
        for step in range(20):
            late = {rank: 200 * MILLISECOND_NS} if step >= 20 - delays else {step % 4: MILLISECOND_NS // 4}
            job.call(late_ns=late)
            job.call(late_ns={step % 4: MILLISECOND_NS // 8})
            job.steps(1)
        return job

    def test_a_job_that_got_slow(self) -> None:
        delay = only(diagnose(evidence(self.slowed())), Delay)

        assert (delay.ranks, delay.times, delay.certainty) == ((2,), 6, Certainty.LIKELY)
        assert (
            delay.text == "the others waited 1.2 s (of 1.3 s) for rank 2, in 6 collectives of group world from 14.1 on"
        )
        assert delay.lines[0].startswith("it first came late to: rank 2 at 14.1: ")
        assert delay.lines[1].startswith("its delay begins after: rank 2 at 13.3: ")
        json.dumps(delay.to_json())

    def test_delays_that_grow_begin_with_the_first_of_them(self) -> None:
        """The machine gets busier: the later ones are many times as long. A long way before, and what the others are
        late as well, is no beginning."""
        job = Job(4)
        for step in range(24):
            grown = 150 if step < 17 else 200 if step == 19 else 1500
            usual = {step % 4: (100 if step == 5 else 40) * MILLISECOND_NS}
            job.call(late_ns={2: grown * MILLISECOND_NS} if step >= 14 else usual)
            job.call(late_ns={step % 4: 20 * MILLISECOND_NS})
            job.steps(1)
        delay = only(diagnose(evidence(job)), Delay)

        assert (delay.ranks, delay.times, str(delay.moment)) == ((2,), 10, "14.1")

    def test_nobody_waits_for_longer_than_there_was_time(self) -> None:
        """A log that begins with a call to which the rank is late: the wait began before that."""
        job = Job(2)
        for n in range(12):
            for rank in job.ranks:
                job.next_step(rank)
            job.call(late_ns={n % 2: MILLISECOND_NS // 8} if n % 3 else {1: 300 * MILLISECOND_NS})
        delay = only(diagnose(evidence(job)), Delay)

        assert delay.before is None and delay.waited_ns <= delay.within_ns

    def test_one_late_start_is_none(self) -> None:
        assert diagnose(evidence(self.slowed(delays=0))).verdicts == ()
        assert diagnose(evidence(self.slowed(delays=1))).verdicts == ()

    def test_a_checkpoint_every_few_steps_is_none(self) -> None:
        """The rank is parked for longer than the job computes; the collective after it waits for it."""
        job = Job(4)
        for step in range(24):
            parked = step % 3 == 2
            if parked:
                job.note(0, "parked")
                job.now_ns += 40 * MILLISECOND_NS
                job.note(0, "released")
            job.call(late_ns={0: 40 * MILLISECOND_NS} if parked else {step % 4: MILLISECOND_NS // 4})
            job.steps(1, lasting_ns=MILLISECOND_NS)

        assert diagnose(evidence(job)).verdicts == ()

    def test_a_few_milliseconds_in_all_are_none(self) -> None:
        job = Job(4)
        for step in range(16):
            job.call(late_ns={0: 4 * MILLISECOND_NS} if step % 4 == 3 else {step % 4: MILLISECOND_NS // 4})
            job.steps(1, lasting_ns=MILLISECOND_NS)

        assert diagnose(evidence(job)).verdicts == ()

    def test_turns_are_none(self) -> None:
        job = Job(4)
        for n in range(24):
            job.call(late_ns={n % 3: 5 * MILLISECOND_NS})

        assert diagnose(evidence(job)).verdicts == ()


def test_every_verdict_can_be_written_as_json() -> None:
    job = Job(3)
    job.call(sends_nan={1}, receives_nan={0})
    job.call(only={0, 1})
    job.call("barrier", only={2})
    job.raises(2)
    job.call(without={2}, done=False)

    data = json.loads(json.dumps(diagnose(evidence(job)).to_json()))

    assert {verdict["kind"] for verdict in data["verdicts"]} == {"raised", "mismatch", "stopped", "nonfinite"}
    assert all(verdict["text"] and verdict["ranks"] for verdict in data["verdicts"])


OPS = (
    "allreduce_",
    "broadcast_",
    "_allgather_base_",
    "_reduce_scatter_base_",
    "alltoall_base_",
    "barrier",
    "message",
)
JITTER_NS = st.integers(0, LEAST_LATENESS_NS - 1)  # of a rank that comes later than this it is said


@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(OPS),
            st.sampled_from([WORLD, "pair", "trio"]),
            st.integers(1, 9),
            st.lists(JITTER_NS, min_size=4, max_size=4),
        ),
        max_size=25,
    )
)
def test_nobody_is_accused_where_all_logs_match(calls: list[tuple[str, str, int, list[int]]]) -> None:
    job = Job(4)
    job.group("pair", (1, 3))
    job.group("trio", (0, 2, 3), desc="mesh_tp")
    for op, group, size, late in calls:
        if op == "message":
            job.point_to_point(size % 4, (size + 1) % 4)
        else:
            tensors = Tensors(shape=(size,))
            job.call(op, group, tensors=tensors, root=0 if op == "broadcast_" else -1, late_ns=dict(enumerate(late)))
    job.exits()

    diagnosis = diagnose(evidence(job))

    assert diagnosis.verdicts == ()
    assert diagnosis.missing == ()


class TestGroupsWithoutAName:
    """A program may make them by hand; each rank counts the calls in all of its own together."""

    def job(self) -> Job:
        """Rank 0 is in a group with rank 1, and in another one with rank 2."""
        job = Job(3)
        for rank in job.ranks:
            job.logs[rank].groups[UNNAMED] = Group(name=UNNAMED, ranks=(0, 1), backend="gloo")
        job.steps(3)
        job.call(group=UNNAMED, only={0, 1}, tensors=Tensors(shape=(3,)))
        job.call(group=UNNAMED, only={0, 2}, tensors=Tensors(shape=(5,)))
        return job

    def test_their_calls_are_not_compared(self) -> None:
        job = self.job()
        job.exits()
        assert diagnose(evidence(job)).verdicts == ()

    def test_nobody_is_accused_of_not_coming(self) -> None:
        job = self.job()
        job.call(group=UNNAMED, only={0}, done=False)
        stopped = [one for one in diagnose(evidence(job)).verdicts if isinstance(one, Stopped)]
        assert all(not one.absent and not one.stall.never_came for one in stopped)
