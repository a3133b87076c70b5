"""Ranks that slipped out of step with their group: where it began is named, and nobody else is accused."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.diagnosis.desync import Desync
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.stops import Stopped
from prismdbg.diagnosis.verdict import Certainty, Verdict
from prismdbg.diagnosis.why import diagnose
from prismdbg.model.frame import Frame
from tests.unit.logs import Job, Tensors

FIRST, SECOND, LOGGED, OTHER = (Frame("/job/train.py", line, "main") for line in (10, 20, 30, 31))
STEPS = 12

Change = Callable[[Job, int], bool]  # at a step; whether the second call of it was made otherwise


def verdicts(job: Job) -> tuple[Verdict, ...]:
    return diagnose(Evidence(logs=job.logs, world_size=len(job.ranks), ended_wall_ns=job.now_ns + 10**12)).verdicts


def slips(job: Job) -> list[Desync]:
    return [verdict for verdict in verdicts(job) if isinstance(verdict, Desync)]


def trained(change: Change = lambda job, step: False, world: int = 3) -> Job:
    """Two all_reduces of one size a step."""
    job = Job(world)
    for step in range(STEPS):
        job.call(frames=(FIRST,))
        if not change(job, step):
            job.call(frames=(SECOND,))
        for rank in job.ranks:
            job.next_step(rank)
    return job


def hangs(job: Job, without: set[int]) -> Job:
    job.call(without=without, done=False)
    return job


def leaves_out(rank: int, at: int) -> Change:
    def change(job: Job, step: int) -> bool:
        if step == at:
            job.call(without={rank}, frames=(SECOND,))
        return step == at

    return change


def test_the_first_place_where_they_differ_comes_first() -> None:
    first, *others = verdicts(hangs(trained(leaves_out(1, at=4)), {1}))

    assert isinstance(first, Desync)
    assert (first.ranks, first.sequence, first.shift, first.certainty) == ((1,), 9, 1, Certainty.CERTAIN)
    assert str(first.moment) == "5.1"
    assert first.text == (
        "rank 1 is out of step with the others from group world #9 on: it seems to have skipped 1 call before that"
    )
    assert [call.rank for call in first.calls] == [1, 0, 2]
    assert first.later == 13
    assert [verdict.kind for verdict in others] == ["stopped"]
    json.dumps(first.to_json())


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("calls", [2, 3])
def test_where_all_calls_of_a_step_come_from_one_line(calls: int, world: int) -> None:
    """As of a function of the program's that wraps the collective: every few calls the ranks look alike."""
    job = Job(world)
    for step in range(STEPS):
        for number in range(calls):
            job.call(without={1} if (step, number) == (4, calls - 1) else set(), frames=(FIRST,))
        for rank in job.ranks:
            job.next_step(rank)
    first, *_ = verdicts(hangs(job, {1}))
    assert isinstance(first, Desync)
    assert (first.ranks, first.sequence, first.shift) == ((1,), 5 * calls - 1, 1)


def test_a_call_too_many() -> None:
    def twice(job: Job, step: int) -> bool:
        if step == 4:
            job.call(only={2}, frames=(SECOND,))
        return False

    [slip] = slips(hangs(trained(twice), {0, 1}))
    assert (slip.ranks, slip.shift) == ((2,), -1)


def test_of_two_ranks_the_one_that_left_it_out() -> None:
    [slip] = slips(hangs(trained(leaves_out(0, at=4), world=2), {0}))
    assert (slip.ranks, slip.shift, slip.certainty) == ((0,), 1, Certainty.LIKELY)
    assert slip.text.endswith("it seems to have skipped 1 call before that, or rank 1 to have made as many too many")


def test_of_two_ranks_the_one_that_made_a_call_at_a_line_of_its_own() -> None:
    """As `if rank == 0: all_reduce(...)` does."""

    def logs(job: Job, step: int) -> bool:
        if step == 4:
            job.call(only={0}, frames=(LOGGED,))
        return False

    [slip] = slips(hangs(trained(logs, world=2), {1}))
    assert (slip.ranks, slip.shift, slip.certainty) == ((0,), -1, Certainty.LIKELY)
    assert slip.text.endswith("it seems to have made 1 call too many before that, or rank 1 to have skipped as many")


def test_calls_in_another_order_are_no_cause_of_the_hang_of_another_rank() -> None:
    """In a job without steps they look like one call that was left out."""
    job = Job(3)
    for _ in range(10):
        job.call(frames=(FIRST,))
        job.call(frames=(SECOND,))
    for _ in range(5):
        for line, swapped in ((FIRST, SECOND), (SECOND, FIRST)):
            job.call(only={0, 2}, frames=(line,))
            job.call(only={1}, frames=(swapped,))
    job.call(without={0}, done=False, frames=(FIRST,))
    stop, slip = verdicts(job)
    assert isinstance(stop, Stopped) and isinstance(slip, Desync)
    assert (stop.certainty, slip.certainty) == (Certainty.CERTAIN, Certainty.LIKELY)


def test_a_step_that_was_not_counted_is_no_cause_of_the_hang_of_another_rank() -> None:
    first, *_ = verdicts(hangs(one_step_short(), {1}))
    assert isinstance(first, Stopped) and first.stall.never_came == (1,)


def one_step_short() -> Job:
    """Rank 2 does not count the fifth."""
    job = Job(3)
    for step in range(STEPS):
        for line in (FIRST, SECOND):
            job.call(frames=(line,))
        for rank in job.ranks:
            if not (rank == 2 and step == 4):
                job.next_step(rank)
    return job


def test_a_step_that_was_left_out_whole() -> None:
    """Its lines fit; only its steps are behind."""
    job = one_step_short()
    [slip] = slips(hangs(job, {2}))
    assert (slip.ranks, slip.sequence, slip.steps, slip.certainty) == ((2,), 10, -1, Certainty.LIKELY)
    assert slip.text.endswith("it is 1 step behind")
    assert verdicts(job)[0] == slip  # before the certain stop, which it explains


def from_on(rank: int, at: int, *, line: Frame = OTHER) -> Change:
    """The rank makes its second call from another line."""

    def change(job: Job, step: int) -> bool:
        if step >= at:
            job.call(only={rank}, frames=(line,))
            job.call(without={rank}, frames=(SECOND,))
        return step >= at

    return change


@pytest.mark.parametrize(("world", "line"), [(2, OTHER), (3, OTHER), (4, OTHER), (3, FIRST)])
def test_another_line_from_a_step_on(world: int, line: Frame) -> None:
    """Without a call too many or too few; each step they agree at the first line."""
    first, *others = verdicts(hangs(trained(from_on(1, at=4, line=line), world), {1}))

    assert isinstance(first, Desync)
    assert (first.ranks, first.sequence, first.shift, first.steps) == ((1,), 9, 0, 0)
    assert (first.certainty, str(first.moment)) == (Certainty.LIKELY, "4.2")
    assert first.text == (
        "from group world #9 on, rank 1 issues its collectives from a different source line than the others; "
        "before that, all used the same line"
    )
    assert [verdict.kind for verdict in others] == ["stopped"]
    json.dumps(first.to_json())


def test_another_line_of_one_rank_is_not_named_before_another_rank_that_never_came() -> None:
    first, second, *_ = verdicts(hangs(trained(from_on(0, at=6), world=4), {2}))
    assert isinstance(first, Stopped) and first.stall.never_came == (2,)
    assert isinstance(second, Desync) and second.ranks == (0,)


def test_another_size_is_found_where_it_began() -> None:
    """What follows the call that was left out is of another size: the mismatch is seen later than the slip."""

    def change(job: Job, step: int) -> bool:
        if step == 9:
            job.call(frames=(SECOND,), tensors=Tensors(shape=(7,)))
            return True
        return leaves_out(1, at=4)(job, step)

    found = verdicts(hangs(trained(change), {1}))
    assert [verdict.kind for verdict in found[:2]] == ["slip", "mismatch"]
    assert isinstance(found[0], Desync) and found[0].sequence == 9


class TestNone:
    def test_where_all_went_well(self) -> None:
        job = trained(leaves_out(1, at=4))
        job.exits()
        assert slips(job) == []

    def test_where_they_never_slipped(self) -> None:
        assert slips(hangs(trained(), {1})) == []

    def test_where_one_rank_logs_beside_the_others(self) -> None:
        """One collective from two lines of one program, from some step on."""

        def change(job: Job, step: int) -> bool:
            if step >= 3:
                job.call(only={0}, frames=(LOGGED,))
                job.call(only={1, 2}, frames=(OTHER,))
            return False

        assert slips(hangs(trained(change), {1})) == []

    @pytest.mark.parametrize("world", [2, 3])
    def test_where_one_rank_reports_every_few_steps(self, world: int) -> None:
        """The others are at the line at which all are in other steps."""

        def change(job: Job, step: int) -> bool:
            return step % 4 == 3 and from_on(0, at=0, line=LOGGED)(job, step)

        assert slips(hangs(trained(change, world), {1})) == []

    @pytest.mark.parametrize("world", [2, 3])
    def test_where_one_rank_is_at_a_line_of_its_own_all_along(self, world: int) -> None:
        assert slips(hangs(trained(from_on(0, at=0, line=LOGGED), world), {1})) == []

    def test_where_each_half_is_at_a_line_of_its_own_from_a_step_on(self) -> None:
        """Stages that begin to send late."""

        def change(job: Job, step: int) -> bool:
            if step >= 3:
                job.call(only={0, 1}, frames=(LOGGED,))
                job.call(only={2, 3}, frames=(SECOND,))
            return step >= 3

        assert slips(hangs(trained(change, 4), {1})) == []

    def test_where_a_line_is_not_known(self) -> None:
        def change(job: Job, step: int) -> bool:
            if step >= 4:
                job.call(only={1}, frames=())
                job.call(without={1}, frames=(SECOND,))
            return step >= 4

        assert slips(hangs(trained(change), {1})) == []

    def test_where_it_was_so_once(self) -> None:
        assert slips(hangs(trained(from_on(1, at=STEPS - 1)), {1})) == []

    def test_where_ranks_run_different_programs(self) -> None:
        job = Job(3)
        for _ in range(STEPS):
            for rank, line in enumerate((FIRST, SECOND, LOGGED)):
                job.call(only={rank}, frames=(line,))
            job.steps(1)
        assert slips(hangs(job, {1})) == []

    def test_where_a_rank_has_no_optimizer(self) -> None:
        job = Job(3)
        for _ in range(STEPS):
            job.call(frames=(FIRST,))
            job.call(frames=(SECOND,))
            for rank in (0, 1):
                job.next_step(rank)
        assert slips(hangs(job, {2})) == []

    def test_where_a_rank_counts_steps_otherwise(self) -> None:
        """A second optimizer: twice as many."""
        job = Job(3)
        for _ in range(STEPS):
            job.call(frames=(FIRST,))
            for rank in (0, 1, 2, 2):
                job.next_step(rank)
        assert slips(hangs(job, {2})) == []

    def test_where_only_the_last_call_is_another(self) -> None:
        job = trained()
        job.call(only={0}, frames=(LOGGED,), done=False)
        job.call(only={1}, frames=(OTHER,), done=False)
        assert slips(job) == []

    def test_where_there_is_no_majority(self) -> None:
        job = Job(4)
        for step in range(STEPS):
            job.call(frames=(FIRST,))
            job.call(frames=(SECOND,), without={0, 1} if step == 4 else set())
            for rank in job.ranks:
                job.next_step(rank)
        assert slips(hangs(job, {0, 1})) == []


@pytest.mark.parametrize("missing", [1, 2])
@given(lines=st.lists(st.sampled_from([FIRST, SECOND, LOGGED]), min_size=4, max_size=30))
def test_nobody_slipped_where_lines_are_alike_everywhere(lines: list[Frame], missing: int) -> None:
    job = Job(3)
    for number, line in enumerate(lines):
        job.call(frames=(line,))
        if number % 3 == 2:
            for rank in job.ranks:
                job.next_step(rank)
    assert slips(hangs(job, {missing})) == []


GRADIENTS = Tensors(shape=(72,))


def shows_at_once(world: int, slip: Callable[[Job], None], usual: Callable[[Job], None] | None = None) -> Job:
    """Two calls of four elements and one of 72 a step; in the last step `slip` is called instead of `usual`."""
    job = Job(world)
    for step in range(STEPS):
        if step == STEPS - 1:
            slip(job)
        elif usual is not None:
            usual(job)
        else:
            job.call(frames=(FIRST,))
            job.call(frames=(SECOND,))
            job.call(frames=(OTHER,), tensors=GRADIENTS)
        for rank in job.ranks if step < STEPS - 1 else ():
            job.next_step(rank)
    return job


@pytest.mark.parametrize("world", [2, 3])
def test_a_call_left_out_that_shows_at_the_next_one(world: int) -> None:
    """The call before the mismatch matched, from another line: that is where the rank slipped, likely."""

    def slip(job: Job) -> None:
        others = set(job.ranks) - {1}
        job.call(only=others, frames=(FIRST,))
        job.call(only={1}, frames=(SECOND,))
        job.call(only=others, frames=(SECOND,), done=False)
        job.call(only={1}, frames=(OTHER,), tensors=GRADIENTS, done=False)

    first, second, *_ = verdicts(shows_at_once(world, slip))
    assert isinstance(first, Desync) and second.kind == "mismatch"
    assert (first.ranks, first.sequence, first.shift, first.certainty) == ((1,), 33, 1, Certainty.LIKELY)
    assert second.to_json()["sequence"] == 34
    assert "it seems to have skipped 1 call before that" in first.text
    assert "train.py:20" in first.lines[0] and "train.py:10" in first.lines[1]


def test_another_line_before_a_mismatch_that_the_next_call_does_not_explain() -> None:
    def slip(job: Job) -> None:
        job.call(only={0, 2}, frames=(FIRST,))
        job.call(only={1}, frames=(LOGGED,))
        job.call(only={0, 2}, frames=(SECOND,), done=False)
        job.call(only={1}, frames=(SECOND,), tensors=GRADIENTS, done=False)

    first, second, *_ = verdicts(shows_at_once(3, slip))
    assert isinstance(first, Desync) and second.kind == "mismatch"
    assert (first.ranks, first.sequence, first.shift, first.certainty) == ((1,), 33, 0, Certainty.LIKELY)
    assert "issues its collectives from a different source line" in first.text


@pytest.mark.parametrize("world", [2, 3])
def test_lines_that_always_differ_explain_no_mismatch_after_them(world: int) -> None:
    def usual(job: Job) -> None:
        others = set(job.ranks) - {1}
        job.call(only=others, frames=(FIRST,))
        job.call(only={1}, frames=(LOGGED,))
        job.call(frames=(SECOND,))

    def slip(job: Job) -> None:
        others = set(job.ranks) - {1}
        job.call(only=others, frames=(FIRST,))
        job.call(only={1}, frames=(LOGGED,))
        job.call(only=others, frames=(SECOND,), done=False)
        job.call(only={1}, frames=(SECOND,), tensors=GRADIENTS, done=False)

    job = shows_at_once(world, slip, usual)
    assert not slips(job)
    assert [verdict.kind for verdict in verdicts(job)][:1] == ["mismatch"]


def test_a_rank_that_matches_at_the_mismatch_did_not_slip_before_it() -> None:
    """Two lines of one step that rank 1 has in another order on purpose; then another rank's call does not match."""

    def usual(job: Job) -> None:
        for line in (FIRST, FIRST, SECOND):
            job.call(frames=(line,))

    def slip(job: Job) -> None:
        job.call(frames=(FIRST,))
        job.call(only={0, 2}, frames=(FIRST,))
        job.call(only={1}, frames=(SECOND,))
        job.call(only={0, 1}, frames=(SECOND,), done=False)
        job.call(only={2}, frames=(SECOND,), tensors=GRADIENTS, done=False)

    first, *others = verdicts(shows_at_once(3, slip, usual))
    assert first.kind == "mismatch" and not any(isinstance(other, Desync) for other in others)
