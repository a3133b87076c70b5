"""NaN and Inf again and again: what a gradient scaler gets over is no incident, and what comes after it is not lost."""

from __future__ import annotations

import pytest

from prismdbg.capsule.log.batch import CLEAN_STEPS, Batch
from prismdbg.capsule.log.events import Note, StepMark
from prismdbg.capsule.log.format import StepSource
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.jobs.record.incidents import SETTLE_NS, IncidentWatch, IsOver, Wanted, parse_triggers
from prismdbg.jobs.record.nonfinite_watch import (
    FIRST,
    LONGEST_HELD_NS,
    MOST_INCIDENTS,
    SKIPPED_IN_A_ROW,
    FirstOfThem,
    NonfiniteWatch,
)
from prismdbg.model.moment import Moment
from tests.unit.logs import lone_collective

NAN = parse_triggers("nan")
TAKEN, SKIPPED = StepSource.OPTIMIZER, StepSource.SKIPPED_BY_SCALER


class Job:
    """Two ranks, whose steps take two seconds; each step is told, and then what is due is asked for."""

    def __init__(self, *, scales: bool) -> None:
        self.watch = IncidentWatch(NAN)
        self.now_ns, self.step = 10**12, 0
        self.wanted: list[Wanted] = []
        for folder in ("0", "1") if scales else ():
            self.watch.feed(folder, Note("scaler", 1, {}), self.now_ns)

    def sends(self, folder: str = "1") -> None:
        call = lone_collective(sent_nonfinite=True, time_created_ns=self.now_ns, moment=Moment(self.step, 1))
        self.watch.feed(folder, Batch(notable=[call], nonfinite=True), self.now_ns)

    def ends_step(self, source: StepSource = TAKEN) -> None:
        self.step += 1
        self.look(SETTLE_NS)
        for folder in ("0", "1"):
            self.watch.feed(folder, StepMark(self.step, self.now_ns, source), self.now_ns)
        self.look(SETTLE_NS)

    def steps(self, count: int, source: StepSource = TAKEN) -> None:
        for _ in range(count):
            if source is SKIPPED:
                self.sends()
            self.ends_step(source)

    def look(self, later_ns: int, *, ended: bool = False) -> None:
        self.now_ns += later_ns
        self.wanted += self.watch.due(self.now_ns, ended)

    @property
    def moments(self) -> list[str]:
        return [str(wanted.incident.moment) for wanted in self.wanted]


def test_an_overflow_that_a_scaler_gets_over_is_none_and_a_later_nan_is() -> None:
    job = Job(scales=True)
    job.steps(3, SKIPPED)
    job.steps(5)
    assert job.wanted == [] and not job.watch.settling
    job.sends()
    job.ends_step()
    assert job.moments == ["8.1"]
    assert "rank 1 sends the first NaN or Inf: all_reduce" in job.wanted[0].incident.text


def test_without_a_scaler_nothing_is_waited_for() -> None:
    job = Job(scales=False)
    job.sends()
    job.look(SETTLE_NS)
    assert job.moments == ["0.1"]


def test_steps_that_are_skipped_in_a_row_are_an_incident() -> None:
    """A parameter that is NaN: the scaler skips every step from there on."""
    job = Job(scales=True)
    job.steps(2, SKIPPED)
    job.steps(1)
    job.steps(SKIPPED_IN_A_ROW - 1, SKIPPED)
    assert job.wanted == []
    job.steps(1, SKIPPED)
    assert job.moments == ["3.1"]
    assert f"the gradient scaler skipped {SKIPPED_IN_A_ROW} steps in a row" in job.wanted[0].incident.text
    job.steps(5, SKIPPED)
    assert len(job.wanted) == 1


def test_what_lasts_to_the_end_is_an_incident() -> None:
    job = Job(scales=True)
    job.steps(3)
    job.steps(2, SKIPPED)
    assert job.wanted == []
    job.look(0, ended=True)
    assert job.moments == ["3.1"]


@pytest.mark.parametrize(("skipped", "wanted"), [(1, []), (2, ["3.1"]), (SKIPPED_IN_A_ROW - 1, ["3.1"])])
def test_what_lasts_when_the_job_is_told_to_end_is_an_incident(skipped: int, wanted: list[str]) -> None:
    """Somebody sees `loss nan`, and ends it. One step alone may be an overflow like any other."""
    job = Job(scales=True)
    job.steps(3)
    job.steps(skipped, SKIPPED)
    told = job.watch.due_at_the_end(job.now_ns, job.now_ns)
    assert [str(one.incident.moment) for one in told] == wanted
    assert job.watch.due_at_the_end(job.now_ns, job.now_ns) == []


def test_a_restart_ends_what_the_attempt_before_it_left_open() -> None:
    job = Job(scales=True)
    job.steps(2, SKIPPED)
    job.watch.feed("0.1", StepMark(1, job.now_ns, TAKEN), job.now_ns)
    job.look(0)
    assert job.moments == ["0.1"] and not job.watch.settling


def test_a_skipped_step_that_no_other_follows_is_not_waited_for_without_end() -> None:
    """An evaluation, say, in which no checkpoint would be taken. If it lasts, it is an incident all the same."""
    job = Job(scales=True)
    job.steps(1, SKIPPED)
    job.look(LONGEST_HELD_NS)
    assert job.wanted == [] and not job.watch.settling
    job.steps(SKIPPED_IN_A_ROW, SKIPPED)
    assert len(job.wanted) == 1


def test_a_step_that_does_not_end_is_not_waited_for_without_end() -> None:
    job = Job(scales=True)
    job.steps(2)
    job.sends()
    job.look(LONGEST_HELD_NS - 1)
    assert job.wanted == []
    job.look(1)
    assert job.moments == ["2.1"]


@pytest.mark.parametrize("scales", [False, True])
def test_after_steps_without_any_the_next_one_is_an_incident_a_bounded_number_of_times(scales: bool) -> None:
    job = Job(scales=scales)
    for _ in range(MOST_INCIDENTS + 2):
        for _ in range(3):  # in three steps one after another: one incident
            job.sends()
            job.ends_step()
        job.steps(CLEAN_STEPS + 1)
    assert job.moments == [f"{n * (3 + CLEAN_STEPS + 1)}.1" for n in range(MOST_INCIDENTS)]
    assert [wanted.nth for wanted in job.wanted] == [1, 2, 3]
    assert "the first NaN or Inf since step" in job.wanted[1].incident.text
    assert f"no more than {MOST_INCIDENTS} of these are reported" in job.wanted[-1].incident.text


def test_that_steps_were_without_any_is_told_once() -> None:
    """Other nodes have to know it."""
    job = Job(scales=False)
    job.steps(3)
    job.sends()
    job.ends_step()
    job.steps(CLEAN_STEPS - 1)
    assert job.watch.newly_over() == []
    job.steps(4)
    over = IsOver(attempt=0, kind=IncidentKind.NAN, time_ns=10**12 + 23 * SETTLE_NS, since_step=4)
    assert job.watch.newly_over() == [over]


def test_a_few_steps_without_any_are_not_enough() -> None:
    job = Job(scales=False)
    for _ in range(5):
        job.sends()
        job.ends_step()
        job.steps(CLEAN_STEPS - 2)
    assert job.moments == ["0.1"]


def test_who_sent_it_is_named_although_only_that_rank_skips_the_step() -> None:
    job = Job(scales=False)
    job.watch.feed("1", Note("scaler", 1, {}), job.now_ns)
    job.sends("1")
    received = lone_collective(
        received_nonfinite=True, time_created_ns=job.now_ns, time_completed_ns=job.now_ns + 1, moment=Moment(0, 1)
    )
    job.watch.feed("0", Batch(notable=[received], nonfinite=True), job.now_ns)
    job.step += 1
    for folder, source in (("1", SKIPPED), ("0", TAKEN)):
        job.watch.feed(folder, StepMark(1, job.now_ns, source), job.now_ns)
    job.look(SETTLE_NS)
    assert [wanted.folder for wanted in job.wanted] == ["1"]


class Pair(Job):
    """Each step has two optimizers under the scaler: the first one ends it, then comes the second one."""

    def __init__(self, *, in_turn: bool) -> None:
        super().__init__(scales=True)
        self.in_turn = in_turn

    def iterate(self, count: int, *, skips: bool = False, late_s: int = 0) -> None:
        """skips: the second one. late_s: so long it is not known."""
        for _ in range(count):
            if skips and not self.in_turn:
                self.sends()
            self.ends_step()
            if skips and self.in_turn:
                self.sends()
            self.look(late_s * SETTLE_NS)
            for folder in ("0", "1"):
                if self.step == 1:
                    self.watch.feed(folder, Note("scaler", 1, {"several": True}), self.now_ns)
                if skips:
                    step = self.step - (not self.in_turn)
                    self.watch.feed(folder, Note("skipped", 1, {"step": step}), self.now_ns)


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("before", [0, 3])
def test_an_overflow_of_a_second_optimizer_is_none(in_turn: bool, before: int) -> None:
    job = Pair(in_turn=in_turn)
    job.iterate(before)
    job.iterate(1, skips=True, late_s=3)
    job.iterate(3)
    job.look(SETTLE_NS)
    assert job.wanted == [] and not job.watch.settling


@pytest.mark.parametrize("in_turn", [False, True])
def test_a_second_optimizer_that_is_skipped_in_a_row_is_an_incident(in_turn: bool) -> None:
    job = Pair(in_turn=in_turn)
    job.iterate(3)
    job.iterate(SKIPPED_IN_A_ROW, skips=True)
    assert job.wanted == []
    job.iterate(2)
    assert job.moments == [f"{4 if in_turn else 3}.1"]
    assert f"the gradient scaler skipped {SKIPPED_IN_A_ROW} steps in a row" in job.wanted[0].incident.text


@pytest.mark.parametrize("ended", [False, True])
def test_what_neither_of_two_optimizers_skips_is_an_incident(ended: bool) -> None:
    job = Pair(in_turn=False)
    job.iterate(3)
    job.sends()
    job.iterate(1)
    assert job.wanted == []
    if ended:
        job.look(0, ended=True)
    else:
        job.iterate(1)
    assert job.moments == ["3.1"]


class Optimizers:
    """One rank whose optimizers have numbers, from FIRST, and are not due in every step."""

    def __init__(self) -> None:
        self.watch = NonfiniteWatch()
        self.watch.note_scaler("1", several=True)
        self.now_ns, self.step = 10**12, 0
        self.skipped: set[int] = set()  # last time
        self.told: list[FirstOfThem] = []

    def iterate(self, due: set[int], skips: set[int]) -> None:
        if skips:
            call = lone_collective(sent_nonfinite=True, time_created_ns=self.now_ns, moment=Moment(self.step, 1))
            self.watch.note_batch("1", Batch(notable=[call], nonfinite=True), {}, self.now_ns)
        gradients_of, self.step = self.step, self.step + 1
        self.watch.note_step("1", StepMark(self.step, self.now_ns, SKIPPED if FIRST in skips else TAKEN))
        for optimizer in due - {FIRST}:
            if optimizer in skips:
                self.watch.note_skipped("1", gradients_of, optimizer)
            elif optimizer in self.skipped:
                self.watch.note_taken("1", optimizer)
        self.skipped = (self.skipped - due) | skips
        self.look(2 * SETTLE_NS)

    def look(self, later_ns: int, *, ended: bool = False, interrupted: bool = False) -> None:
        self.now_ns += later_ns
        told = self.watch.decide(self.now_ns, ended, 2 * SETTLE_NS, interrupted=interrupted)
        self.told += [told] if told is not None else []

    @property
    def moments(self) -> list[str]:
        return [str(told.found.record.moment) for told in self.told]


@pytest.mark.parametrize("every", [1, 2, 5, 12])
def test_a_nan_that_lasts_is_one_incident_where_its_optimizer_is_not_due_in_each_step(every: int) -> None:
    """Also where it takes longer than what was skipped is kept in other jobs, and where more steps without any lie
    between two with one than end an incident."""
    job = Optimizers()
    for step in range(20 * every):
        is_due = step % every == 0
        lasts = is_due and step >= 2 * every
        job.iterate({FIRST, 1} if is_due else {FIRST}, {1} if lasts else set())
        assert bool(job.told) == (step >= (2 + SKIPPED_IN_A_ROW - 1) * every)
    job.look(0, ended=True)
    assert job.moments == [f"{2 * every}.1"]
    assert f"skipped {SKIPPED_IN_A_ROW} steps in a row" in job.told[0].remark


def test_what_lasts_in_a_few_of_the_steps_is_an_incident_when_the_job_is_told_to_end() -> None:
    job = Optimizers()
    for step in range(17):
        is_due = step % 5 == 0
        job.iterate({FIRST, 1} if is_due else {FIRST}, {1} if is_due and step >= 10 else set())
    assert job.told == []
    job.look(0, interrupted=True)
    assert job.moments == ["10.1"] and "2 steps in a row" in job.told[0].remark


def test_each_of_several_optimizers_has_its_own_row() -> None:
    """One that takes its steps does not hide another that takes none, and overflows of each now and then are not
    counted together."""
    job = Optimizers()
    for step in range(60):
        job.iterate({FIRST, 1, 2}, {(step // 2) % 3} if step % 2 else set())
    job.iterate({FIRST, 1, 2}, set())
    job.iterate({FIRST, 1, 2}, set())
    assert job.told == [] and job.watch.since_ns is None
    for step in range(3 * SKIPPED_IN_A_ROW):
        job.iterate({FIRST, 1 + step % 2}, {2} if step % 2 else ({1} if step == 8 else set()))
    assert job.moments == ["63.1"]


@pytest.mark.parametrize("optimizer", [FIRST, 1])
@pytest.mark.parametrize("every", [1, 2, 5])
def test_an_overflow_now_and_then_is_none(optimizer: int, every: int) -> None:
    job = Optimizers()
    for step in range(200):
        is_due = optimizer == FIRST or step % every == 0
        overflows = is_due and step % (4 * every) == 0
        job.iterate({FIRST, 1} if step % every == 0 else {FIRST}, {optimizer} if overflows else set())
    assert job.told == [] and job.watch.since_ns is None
