"""The hang detector: it names the collective and who never joined it, and accuses nobody else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from prismdbg.capsule.log.batch import Batch
from prismdbg.capsule.log.events import Completion, Event
from prismdbg.diagnosis.hang import GAPS_REMEMBERED, NS_PER_S, Busy, HangDetector, HangReport
from prismdbg.model.collective import Collective, Frame, State
from tests.unit.followed import followed
from tests.unit.logs import MILLISECOND_NS, WORLD, Job, Tensors, chain_of_waits, circle_of_waits

BOUND_NS = 30 * NS_PER_S
HISTORY = GAPS_REMEMBERED


def events_of(job: Job, rank: int) -> list[Event]:
    """As the rank's log has them: an issue, then its completion."""
    log = job.logs[rank]
    events: list[Event] = list(log.groups.values())
    timed: list[tuple[int, Event]] = [(note.time_ns, note) for note in log.notes]
    timed += [(mark.time_ns, mark) for mark in log.steps]
    for call in log.collectives:
        timed.append((call.time_created_ns, replace(call, state=State.SCHEDULED, time_completed_ns=None)))
        if call.time_completed_ns is not None:
            timed.append((call.time_completed_ns, Completion(call)))
    return events + [event for _, event in sorted(timed, key=lambda item: item[0])]


def watch(job: Job, ranks: Iterable[int] | None = None) -> HangDetector:
    """ranks: of this node; None for all."""
    detector = HangDetector(BOUND_NS)
    for rank in job.ranks if ranks is None else ranks:
        for event in followed(events_of(job, rank)):
            detector.feed(rank, event)
    return detector


def after(job: Job, seconds: float) -> list[HangReport]:
    return watch(job).due(job.now_ns + int(seconds * NS_PER_S))


class TestWhatIsAHang:
    def test_a_rank_that_never_came(self) -> None:
        job = Job(4)
        job.steps(3)
        job.call(without={2}, done=False)

        (report,) = after(job, 31)

        assert report.stall.waiting_ranks == (0, 1, 3)
        assert report.stall.never_came == (2,)
        assert report.ranks == (0, 2)
        assert str(report.moment) == "3.1"
        assert report.text == (
            "ranks 0, 1 and 3 waited 31 s in all_reduce (group world #3, 3.1)"
            " at /job/train.py:42 in main; rank 2 never joined it"
        )

    def test_not_before_the_bound(self) -> None:
        job = Job(2)
        job.call(without={1}, done=False)

        assert after(job, 29) == []

    def test_a_hang_is_reported_once(self) -> None:
        job = Job(2)
        job.call(without={1}, done=False)
        detector = watch(job)

        assert len(detector.due(job.now_ns + 2 * BOUND_NS)) == 1
        assert detector.due(job.now_ns + 3 * BOUND_NS) == []

    def test_a_single_rank_that_waits(self) -> None:
        job = Job(2)
        job.point_to_point(0, 1, sent=False, done=False)

        (report,) = after(job, 31)

        assert report.stall.waiting_ranks == (1,)
        assert report.stall.never_came == (0,)

    def test_everybody_came_and_nothing_completed(self) -> None:
        job = Job(2)
        job.call(done=False)

        (report,) = after(job, 31)

        assert report.ranks == (0,)
        assert "every known rank of the group joined it" in report.text

    def test_only_the_cause_is_reported(self) -> None:
        (report,) = after(chain_of_waits(), 31)

        assert report.stall.group.name == "right"
        assert report.stall.never_came == (2,)

    def test_a_circle_of_waits(self) -> None:
        (report,) = after(circle_of_waits(), 31)

        assert report.ranks == (0, 1)
        assert report.text == (
            "ranks 0 and 1 waited 31 s for each other: "
            "rank 0 in all_reduce (group a #0, 0.1) at /job/train.py:42 in main and "
            "rank 1 in all_reduce (group b #0, 0.1) at /job/train.py:42 in main"
        )

    def test_a_rank_without_a_log_is_not_accused(self) -> None:
        job = Job(2)
        job.call(without={1}, done=False)
        detector = HangDetector(BOUND_NS)
        for event in followed(events_of(job, 0)):
            detector.feed(0, event)

        (report,) = detector.due(job.now_ns + 2 * BOUND_NS)

        assert report.stall.never_came == ()
        assert report.stall.unknown == (1,)

    def test_a_rank_whose_recording_ended_is_not_accused(self) -> None:
        job = Job(2)
        job.note(1, "lost", text="the disk is full")
        job.call(without={1}, done=False)

        (report,) = after(job, 31)

        assert report.stall.never_came == ()
        assert report.stall.unknown == (1,)

    def test_a_dead_rank_never_came_and_waits_no_more(self) -> None:
        job = Job(3)
        job.group("pair", (1, 2))
        job.call(group="pair", only={1}, done=False)
        job.call(only={0, 2}, done=False)
        detector = watch(job)
        detector.died(1)

        (report,) = detector.due(job.now_ns + 2 * BOUND_NS)

        assert report.stall.waiting_ranks == (0, 2)
        assert report.stall.never_came == (1,)

    def test_whoever_died_before_a_restart_may_hang_after_it(self) -> None:
        job = Job(2)
        job.call(without={1}, done=False)
        detector = HangDetector(BOUND_NS)
        for rank in job.ranks:
            for event in followed(events_of(job, rank)):
                detector.feed(rank, event, attempt=1)
        detector.died(0, attempt=0)

        (report,) = detector.due(job.now_ns + 2 * BOUND_NS)

        assert report.stall.waiting_ranks == (0,)


class TestWhatIsNone:
    def test_while_a_rank_is_parked_nothing_is_due(self) -> None:
        job = Job(3)
        job.note(2, "parked")
        job.call(without={2}, done=False)

        assert after(job, 100) == []

    def test_after_a_release_waits_count_from_there(self) -> None:
        job = Job(3)
        job.note(2, "parked")
        job.call(without={2}, done=False)
        job.now_ns += 2 * BOUND_NS
        job.note(2, "released")

        assert after(job, 29) == []
        assert len(after(job, 31)) == 1

    def test_a_park_stops_the_clock_and_does_not_put_it_back(self) -> None:
        job = Job(3)
        job.call(without={2}, done=False)
        for rank in (0, 1):
            job.now_ns += 10 * NS_PER_S
            job.note(rank, "parked")
            job.now_ns += BOUND_NS
            job.note(rank, "released")

        assert after(job, 9) == []
        (report,) = after(job, 11)
        assert "waited 31 s" in report.text

    def test_parks_of_several_ranks_at_once_count_once(self) -> None:
        job = Job(3)
        job.call(without={2}, done=False)
        for rank in (0, 1):
            job.note(rank, "parked")
            job.now_ns += 10 * NS_PER_S
        for rank in (0, 1):
            job.note(rank, "released")
            job.now_ns += 10 * NS_PER_S

        assert after(job, 19) == []
        assert len(after(job, 21)) == 1

    def test_a_rank_that_dies_while_it_is_parked_holds_nobody(self) -> None:
        job = Job(3)
        job.note(2, "parked")
        job.call(without={2}, done=False)
        detector = watch(job)
        assert detector.due(job.now_ns + 2 * BOUND_NS) == []
        detector.died(2)

        (report,) = detector.due(job.now_ns + 2 * BOUND_NS)

        assert report.stall.never_came == (2,)

    def test_a_hang_is_suspected_after_half_the_bound(self) -> None:
        job = Job(2)
        job.call(without={1}, done=False)
        detector = watch(job)

        assert not detector.suspects(job.now_ns + 14 * NS_PER_S)
        assert detector.suspects(job.now_ns + 16 * NS_PER_S)

    def test_a_work_that_nobody_waits_for(self) -> None:
        """An isend that was never waited for stays open while the message arrives and training goes on."""
        job = Job(2)
        job.point_to_point(0, 1)
        sent = job.logs[0].collectives[-1]
        job.logs[0].collectives[-1] = replace(sent, state=State.SCHEDULED, time_completed_ns=None)

        assert after(job, 100) == []

    def test_a_receive_posted_ahead_while_the_thread_goes_on(self) -> None:
        job = Job(2)
        job.point_to_point(0, 1, sent=False, done=False)
        job.now_ns += BOUND_NS
        job.steps(1)

        assert after(job, 1) == []

    def test_a_rank_that_ended_waits_no_more(self) -> None:
        job = Job(2)
        job.call(without={1}, done=False)
        job.raises(0)

        assert after(job, 100) == []

    def test_a_restart_makes_the_attempt_before_forgotten(self) -> None:
        job = Job(2)
        job.call(without={1}, done=False)
        detector = watch(job)
        again = Job(2)
        again.steps(1)
        for rank in again.ranks:
            for event in followed(events_of(again, rank)):
                detector.feed(rank, event, attempt=1)

        assert detector.due(job.now_ns + 2 * BOUND_NS) == []


@given(
    ops=st.lists(
        st.tuples(
            st.sampled_from(["allreduce_", "broadcast_", "_allgather_base_", "barrier"]),
            st.sampled_from([WORLD, "pair"]),
        ),
        max_size=12,
    ),
    late_ms=st.lists(st.integers(0, 20), min_size=3, max_size=3),
    cut=st.data(),
)
def test_who_came_is_never_accused(ops: list[tuple[str, str]], late_ms: list[int], cut: st.DataObject) -> None:
    """Whatever prefix of its log each rank has written: accused are only ranks whose log lacks the collective."""
    job = Job(3)
    job.group("pair", (0, 2))
    for op, group in ops:
        late = {rank: ms * MILLISECOND_NS for rank, ms in enumerate(late_ms)}
        job.call(op, group, late_ns=late, root=0 if op == "broadcast_" else -1)
    detector = HangDetector(BOUND_NS)
    issued: dict[int, set[tuple[str, int]]] = {}
    for rank in job.ranks:
        events = events_of(job, rank)
        kept = events[: cut.draw(st.integers(2, max(2, len(events))))]
        issued[rank] = {(e.group, e.identity.seq) for e in kept if isinstance(e, Collective)}
        for event in followed(kept):
            detector.feed(rank, event)

    for report in detector.due(job.now_ns + 10 * BOUND_NS):
        meeting = (report.stall.key.group, report.stall.key.seq)
        assert all(meeting not in issued[rank] for rank in report.stall.never_came)
        assert all(meeting in issued[rank] for rank in report.stall.waiting_ranks)


class TestAgainstTheJobsOwnPast:
    """A machine that is starved, or a job of long steps, is slow before it hangs."""

    def job(self, step_s: float, steps: int = 6) -> Job:
        job = Job(4)
        for _ in range(steps):
            job.steps(1, lasting_ns=int(step_s * NS_PER_S))
        job.call(without={2}, done=False)
        return job

    def test_a_step_that_was_as_long_before_is_no_hang(self) -> None:
        job = self.job(step_s=25)
        assert after(job, 31) == after(job, 70) == []
        (report,) = after(job, 80)
        assert report.stall.never_came == (2,)

    def test_it_is_called_slow_once_and_then_a_hang(self) -> None:
        job = self.job(step_s=25)
        detector = watch(job)
        at = [job.now_ns + seconds * NS_PER_S for seconds in (29, 31, 40, 80, 90)]
        assert [len(detector.slow(now_ns)) for now_ns in at] == [0, 1, 0, 0, 0]
        assert [len(detector.due(now_ns)) for now_ns in at] == [0, 0, 0, 1, 0]

    def test_short_steps_leave_the_bound_as_it_was(self) -> None:
        assert len(after(self.job(step_s=2), 31)) == 1

    def test_what_is_long_past_no_longer_counts(self) -> None:
        job = Job(4)
        job.steps(1, lasting_ns=200 * NS_PER_S)
        job.steps(HISTORY + 1)
        job.call(without={2}, done=False)
        assert len(after(job, 31)) == 1

    @given(st.floats(min_value=0.01, max_value=1e5), st.integers(min_value=1, max_value=8))
    def test_whatever_the_past_was_a_hang_is_told_within_ten_bounds(self, step_s: float, steps: int) -> None:
        job = self.job(step_s, steps)
        assert len(after(job, 10 * 30 + 1)) == 1

    @given(st.lists(st.floats(min_value=0.01, max_value=200), min_size=4, max_size=12))
    def test_no_wait_that_the_last_steps_have_had_is_a_hang(self, steps_s: list[float]) -> None:
        job = Job(4)
        for step_s in steps_s:
            job.steps(1, lasting_ns=int(step_s * NS_PER_S))
        job.call(without={2}, done=False)
        assert after(job, min(max(steps_s), 299)) == []

    def test_who_computes_or_gets_no_processor_is_given_longer(self) -> None:
        job = self.job(step_s=1)
        for busy in (Busy(computing=frozenset({2})), Busy(in_line=frozenset({2}))):
            detector = watch(job)
            assert detector.due(job.now_ns + 31 * NS_PER_S, busy) == []
            assert len(detector.slow(job.now_ns + 31 * NS_PER_S, busy)) == 1
            assert len(detector.due(job.now_ns + 151 * NS_PER_S, busy)) == 1

    def test_who_waits_may_spin(self) -> None:
        job = self.job(step_s=1)
        busy = Busy(computing=frozenset({0, 1, 3}), in_line=frozenset({0, 1, 3}))
        assert len(watch(job).due(job.now_ns + 31 * NS_PER_S, busy)) == 1

    def test_where_all_came_a_starved_member_counts(self) -> None:
        job = Job(2)
        job.call(done=False)
        starved, spinning = Busy(in_line=frozenset({1})), Busy(in_line=frozenset({1}), computing=frozenset({1}))
        assert watch(job).due(job.now_ns + 31 * NS_PER_S, starved) == []
        assert len(watch(job).due(job.now_ns + 31 * NS_PER_S, spinning)) == 1

    def test_a_long_start_says_nothing_of_the_steps(self) -> None:
        job = Job(4)
        job.call()
        job.now_ns += 500 * NS_PER_S
        job.steps(3)
        job.call(without={2}, done=False)
        assert len(after(job, 31)) == 1


class TestRanksOfSeveralNodes:
    """Ranks 2 and 3 are of this node, and wait for rank 0 of another one, of which there is no log here."""

    def job(self) -> Job:
        job = Job(4)
        job.steps(3)
        job.call(without={0}, done=False)
        return job

    def due(self, busy: Busy, seconds: float, held: tuple[float, float] | None = None) -> list[HangReport]:
        job = self.job()
        detector, now_ns = watch(job, (2, 3)), job.now_ns + int(seconds * NS_PER_S)
        assert detector.awaits_unknown(now_ns)
        if held is not None:
            begun_s, ended_s = held
            detector.hold_elsewhere([(now_ns - int(begun_s * NS_PER_S), now_ns - int(ended_s * NS_PER_S))])
        return detector.due(now_ns, busy)

    def test_who_is_busy_there_is_given_longer(self) -> None:
        busy = Busy(elsewhere=frozenset({0}))
        assert self.due(busy, 36) == []
        assert len(self.due(busy, 151)) == 1

    def test_who_is_idle_there_and_who_is_busy_but_not_waited_for_is_not(self) -> None:
        assert len(self.due(Busy(), 36)) == len(self.due(Busy(elsewhere=frozenset({5})), 36)) == 1

    def test_time_in_which_a_rank_is_held_there_counts_for_no_wait(self) -> None:
        assert self.due(Busy(), 100, held=(80, 0)) == []
        assert self.due(Busy(), 110, held=(90, 5)) == []
        assert len(self.due(Busy(), 110, held=(109, 40))) == 1

    def test_nobody_is_asked_before_the_bound_nor_where_all_are_known(self) -> None:
        job = self.job()
        assert not watch(job, (2, 3)).awaits_unknown(job.now_ns + 29 * NS_PER_S)
        assert not watch(job).awaits_unknown(job.now_ns + 36 * NS_PER_S)

    def test_who_waits_itself_holds_nobody_up_unless_it_gets_no_processor(self) -> None:
        """On a device it may spin."""
        job = self.job()
        there, now_ns = watch(job, (0, 1)), job.now_ns + 29 * NS_PER_S
        both = frozenset({0, 1})
        assert there.is_anyone_quiet(now_ns)
        assert there.holding_up(Busy(computing=both, in_line=both), now_ns) == {0}
        assert there.holding_up(Busy(in_line=both), now_ns) == {0, 1}
        assert there.holding_up(Busy(), now_ns) == frozenset()

    def test_of_a_rank_that_goes_on_or_has_ended_nothing_is_looked_at(self) -> None:
        job = self.job()
        there = watch(job, (0, 1))
        assert not there.is_anyone_quiet(job.now_ns + 10 * NS_PER_S)
        there.died(0)
        there.died(1)
        assert not there.is_anyone_quiet(job.now_ns + 60 * NS_PER_S)
        assert there.holding_up(Busy(computing=frozenset({0})), job.now_ns + 60 * NS_PER_S) == frozenset()

    def test_when_its_ranks_were_held_is_known(self) -> None:
        job = self.job()
        job.note(0, "parked")
        there, parked_ns = watch(job, (0, 1)), job.now_ns
        assert there.held(parked_ns + 5) == [(parked_ns, parked_ns + 5)]


class TestRanksThatDoNotAgree:
    """In one call that they did not all mean: then they have not joined the one that somebody waits in."""

    def job(self, *, steps: int = 2, waits: bool = True) -> Job:
        job = Job(3)
        job.steps(steps)
        job.call(only={0, 2}, done=False)
        job.call("broadcast_", only={1}, root=0, done=not waits, frames=(Frame("/job/train.py", 66, "log"),))
        return job

    def test_each_is_told_with_what_it_did(self) -> None:
        (report,) = after(self.job(), 31)

        assert report.text == (
            "ranks 0, 1 and 2 waited 31 s in calls that do not match (group world #2, 2.1): rank 1 in broadcast at "
            "/job/train.py:66 in log and ranks 0 and 2 in all_reduce at /job/train.py:42 in main: broadcast instead of "
            "all_reduce"
        )
        assert report.ranks == (0, 1)

    def test_also_of_one_that_came_later(self) -> None:
        job = self.job(steps=0)
        last = job.logs[1].collectives[-1]
        job.logs[1].collectives[-1] = replace(last, time_created_ns=job.now_ns + 20 * NS_PER_S)

        (report,) = after(job, 31)

        assert "rank 1 in broadcast" in report.text and "joined it" not in report.text

    def test_who_left_it_is_told(self) -> None:
        """The root of a broadcast sends, and goes on."""
        job = self.job(waits=False)
        job.call(only={1}, done=False)

        (report,) = after(job, 31)

        assert report.stall.waiting_ranks == (0, 2)
        assert report.text.endswith(
            "every known rank of the group joined it; rank 1 (last call: all_reduce, 2.2 at /job/train.py:42 in main) "
            "no longer waits in it"
        )

    def test_other_sizes_are_other_calls(self) -> None:
        job = Job(3)
        job.call(only={0, 1}, done=False)
        job.call(only={2}, done=False, tensors=Tensors(shape=(8,)))

        (report,) = after(job, 31)

        assert report.text.endswith("input elements 8 instead of 4")
        assert report.ranks == (0, 2)


class TestOneStallIsOneHang:
    """Whatever stands at the same time in one attempt."""

    def pipeline(self) -> tuple[Job, HangDetector]:
        """Rank 1 sleeps; rank 0 waits to receive from it, and rank 2, too, but from 20 s later on."""
        job = Job(3)  # without a step, so that these 20 s count for no pace
        job.point_to_point(1, 0, sent=False, done=False)
        job.now_ns += 20 * NS_PER_S
        job.point_to_point(1, 2, sent=False, done=False)
        return job, watch(job)

    def test_who_waits_from_later_on_is_no_other_hang(self) -> None:
        job, detector = self.pipeline()
        (report,) = detector.due(job.now_ns + 11 * NS_PER_S)
        assert report.ranks == (0, 1)
        assert [detector.due(job.now_ns + seconds * NS_PER_S) for seconds in (16, 31, 300)] == [[], [], []]
        assert detector.slow(job.now_ns + 301 * NS_PER_S) == []

    def test_all_that_stands_is_told_at_once(self) -> None:
        job, detector = self.pipeline()
        (report,) = detector.due(job.now_ns + 31 * NS_PER_S)
        assert report.ranks == (0, 1)
        assert "; rank 1 never joined it; at the same time rank 2 waited 31 s in recv" in report.text

    def test_it_is_told_again_once_the_job_went_on(self) -> None:
        job, detector = self.pipeline()
        assert len(detector.due(job.now_ns + 31 * NS_PER_S)) == 1
        for rank in (0, 2):
            detector.feed(rank, Batch(closed=[call.record_id for call in job.logs[rank].collectives]))
        later = Job(3)
        later.now_ns = job.now_ns + 100 * NS_PER_S
        later.steps(5)
        later.call(without={2}, done=False)
        for rank in later.ranks:
            late = later.logs[rank].collectives
            later.logs[rank].collectives[:] = [replace(call, record_id=call.record_id + 1000) for call in late]
            for event in followed(events_of(later, rank)):
                detector.feed(rank, event)
        (report,) = detector.due(later.now_ns + 31 * NS_PER_S)
        assert report.stall.never_came == (2,)

    def test_while_a_part_of_it_stands_it_has_not_gone_on(self) -> None:
        job, detector = self.pipeline()
        assert len(detector.due(job.now_ns + 31 * NS_PER_S)) == 1
        detector.feed(0, Batch(closed=[call.record_id for call in job.logs[0].collectives]))
        job.point_to_point(2, 0, sent=False, done=False)
        for event in followed(events_of(job, 0)):
            detector.feed(0, event)
        assert detector.due(job.now_ns + 60 * NS_PER_S) == []

    def test_a_work_that_stays_open_hides_no_later_hang(self) -> None:
        """Rank 0 does not wait for it any more: its thread has gone on."""
        job, detector = self.pipeline()
        assert len(detector.due(job.now_ns + 31 * NS_PER_S)) == 1
        job.now_ns += 100 * NS_PER_S
        job.call(only={0, 2}, done=False)
        for rank in (0, 2):
            for event in followed(events_of(job, rank)):
                detector.feed(rank, event)
        (report,) = detector.due(job.now_ns + 31 * NS_PER_S)
        assert report.stall.never_came == (1,) and "all_reduce" in report.text

    def test_the_next_attempt_has_its_own(self) -> None:
        job, detector = self.pipeline()
        assert len(detector.due(job.now_ns + 31 * NS_PER_S)) == 1
        for rank in (0, 1):  # rank 2 is not started again
            for event in followed(events_of(job, rank)):
                detector.feed(rank, event, attempt=1)
        assert len(detector.due(job.now_ns + 31 * NS_PER_S)) == 1


class TestHangsThatHaveNothingToDoWithEachOther:
    """One that was reported hides none for which others are the cause."""

    def pairs(self, count: int, apart_s: int) -> tuple[Job, HangDetector]:
        """Rank 0 waits for rank 1, and later on rank 2 for rank 3, and so forth."""
        job = Job(2 * count)
        for first in range(0, 2 * count, 2):
            job.point_to_point(first + 1, first, sent=False, done=False)
            job.now_ns += apart_s * NS_PER_S
        return job, watch(job)

    def test_each_is_told_when_it_is_due(self) -> None:
        job, detector = self.pairs(2, 20)
        began = job.now_ns - 40 * NS_PER_S
        told = [detector.due(began + seconds * NS_PER_S) for seconds in (31, 49, 51, 500)]
        assert [[report.ranks for report in reports] for reports in told] == [[(0, 1)], [], [(2, 3)], []]

    def test_also_long_after_the_first(self) -> None:
        job, detector = self.pairs(2, 500)
        began = job.now_ns - 1000 * NS_PER_S
        assert [report.ranks for report in detector.due(began + 31 * NS_PER_S)] == [(0, 1)]
        assert [report.ranks for report in detector.due(began + 531 * NS_PER_S)] == [(2, 3)]

    def test_who_waits_for_a_rank_that_goes_on_is_no_part_of_what_holds_that_rank_up_later(self) -> None:
        """An evaluator waits for rank 0, which trains; then rank 0 waits for rank 1 without end."""
        job = Job(3)
        job.point_to_point(0, 2, sent=False, done=False)
        detector = watch(job)
        assert [report.ranks for report in detector.due(job.now_ns + 31 * NS_PER_S)] == [(2, 0)]
        job.now_ns += 60 * NS_PER_S
        job.point_to_point(1, 0, sent=False, done=False)
        for event in followed(events_of(job, 0)):
            detector.feed(0, event)
        assert [report.ranks for report in detector.due(job.now_ns + 31 * NS_PER_S)] == [(0, 1)]

    def test_of_many_at_once_a_few_are_told(self) -> None:
        job, detector = self.pairs(40, 0)
        (report,) = detector.due(job.now_ns + 31 * NS_PER_S)
        assert len(report.ranks) == 6 and len(report.text) < 1000
        assert report.text.endswith("; at the same time 35 more calls hung")


class TestAskedAgainLater:
    """Where several supervisors first agree on who captures it."""

    def test_it_stands_while_somebody_still_waits_or_ended_in_it(self) -> None:
        job = Job(3)
        job.call(without={2}, done=False)
        detector = watch(job)
        (report,) = detector.due(job.now_ns + 2 * BOUND_NS)

        assert not detector.has_gone_on(report)
        detector.died(0)
        detector.died(1)
        assert not detector.has_gone_on(report)

    def test_it_has_gone_on_when_the_call_completed(self) -> None:
        job = Job(2)
        job.call(without={1}, done=False)
        detector = watch(job)
        (report,) = detector.due(job.now_ns + 2 * BOUND_NS)
        detector.feed(0, Batch(closed=[report.stall.first.collective.record_id]))

        assert detector.has_gone_on(report)
