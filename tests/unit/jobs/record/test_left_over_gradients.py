"""Gradients of a step that a scaler skipped stay until they are set to zero. The standard loop of a GAN sends them
again: the loss of the generator goes through the discriminator, whose optimizer was skipped."""

from __future__ import annotations

import pytest

from prismdbg.capsule.log.batch import CLEAN_STEPS, Batch
from prismdbg.capsule.log.events import Note, StepMark
from prismdbg.capsule.log.format import StepSource
from prismdbg.diagnosis.skipped_steps import LEFT_OVER_STEPS
from prismdbg.jobs.record.incidents import SETTLE_NS, IncidentWatch, Wanted, parse_triggers
from prismdbg.jobs.record.nonfinite_watch import LONGEST_HELD_NS, SKIPPED_IN_A_ROW
from prismdbg.model.moment import Moment
from tests.unit.logs import lone_collective

TAKEN, SKIPPED = StepSource.OPTIMIZER, StepSource.SKIPPED_BY_SCALER
RANKS = ("0", "1")
STEP_NS = 4 * SETTLE_NS
LATER = 5  # iterations


class Gan:
    """Each iteration: the discriminator, whose optimizer ends the step, then the generator, in the step that begins."""

    def __init__(self, *, several: bool = True) -> None:
        self.watch = IncidentWatch(parse_triggers("nan"))
        self.now_ns, self.step, self.nth = 10**12, 0, 0
        self.wanted: list[Wanted] = []
        for folder in RANKS:
            self.watch.feed(folder, Note("scaler", 1, {"several": several}), self.now_ns)

    def calls(self, sends: str = "") -> None:
        """`sends`: the ranks that send NaN or Inf; all receive it."""
        self.nth += 1
        self.now_ns += 1000
        moment = Moment(self.step, self.nth)
        for folder in RANKS:
            of_rank = Batch(reached={("0",): self.nth})
            if folder in sends:
                sent_ns = self.now_ns + 100 * (folder == sends[:1] == "1")  # a rank may be the first by chance
                of_rank.notable = [lone_collective(sent_nonfinite=True, time_created_ns=sent_ns, moment=moment)]
            of_rank.nonfinite = bool(sends)
            self.watch.feed(folder, of_rank, self.now_ns)

    def first_optimizer(self, source: StepSource = TAKEN) -> None:
        self.step, self.nth = self.step + 1, 0
        for folder in RANKS:
            self.watch.feed(folder, StepMark(self.step, self.now_ns, source), self.now_ns)

    def iterate(self, count: int = 1, *, overflows: bool = False, left: bool | None = None, bad: str = "") -> None:
        """overflows: the discriminator's loss on rank 1. left: its gradients are sent again by the generator's loss.
        bad: the ranks that send NaN in the generator's part in any case."""
        for _ in range(count):
            self.calls("1" if overflows else "")
            self.first_optimizer(SKIPPED if overflows else TAKEN)
            self.look(STEP_NS // 2)
            self.calls("01" if (overflows if left is None else left) else bad)
            self.look(STEP_NS // 2)

    def look(self, later_ns: int, *, ended: bool = False) -> None:
        self.now_ns += later_ns
        self.wanted += self.watch.due(self.now_ns, ended)

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(wanted.folder, str(wanted.incident.moment)) for wanted in self.wanted]


@pytest.mark.parametrize("before", [0, 6])
@pytest.mark.parametrize("overflows", [1, 3])
def test_what_is_left_of_a_skipped_step_is_no_incident(before: int, overflows: int) -> None:
    job = Gan()
    job.iterate(before)
    job.iterate(overflows, overflows=True)
    job.iterate(LATER)
    assert job.told == [] and not job.watch.settling


def test_overflows_now_and_then_are_none() -> None:
    job = Gan()
    for _ in range(20):
        job.iterate(overflows=True)
        job.iterate(2)
    job.iterate(LATER)
    assert job.told == [] and not job.watch.settling


def test_nor_is_it_one_at_the_end_of_the_job_where_it_was_gone_before() -> None:
    job = Gan()
    job.iterate(6)
    job.iterate(overflows=True)
    job.iterate(1)
    job.look(0, ended=True)
    assert job.told == []


def test_what_was_skipped_last_when_the_job_ended_is_an_incident_of_who_sent_it_first() -> None:
    job = Gan()
    job.iterate(6)
    job.iterate(overflows=True)
    job.look(0, ended=True)
    assert job.told == [("1", "6.2")]


def test_what_lasts_after_a_skipped_step_is_an_incident_of_who_sent_the_first_of_all() -> None:
    """Rank 0 sends NaN as long as it trains, in values of which the scaler does not know."""
    job = Gan()
    job.iterate(6)
    job.iterate(overflows=True)
    job.iterate(LATER, bad="0")
    assert job.told == [("1", "6.2")]


def test_what_comes_after_a_step_without_any_is_the_first_again() -> None:
    job = Gan()
    job.iterate(6)
    job.iterate(overflows=True)
    job.iterate(3)
    job.iterate(LATER, bad="0")
    assert job.told == [("0", "11.1")]


def test_overflows_without_end_are_an_incident() -> None:
    job = Gan()
    job.iterate(6)
    job.iterate(SKIPPED_IN_A_ROW + 2, overflows=True)
    assert job.told == [("1", "6.2")]


def test_left_overs_in_each_step_are_an_incident_in_the_end() -> None:
    """Every second step is skipped, and the steps between are not without NaN or Inf."""
    job = Gan()
    for _ in range(LEFT_OVER_STEPS + 2):
        job.iterate(overflows=True)
        job.calls("01")
        job.first_optimizer()
        job.look(STEP_NS)
    assert job.told == [("1", "0.1")]


def test_an_incident_is_told_again_after_steps_without_any_and_left_overs_are_not() -> None:
    job = Gan()
    job.iterate(3, bad="0")
    job.iterate(CLEAN_STEPS + 3)
    job.iterate(overflows=True)
    job.iterate(2)
    assert job.told == [("0", "1.1")]


@pytest.mark.parametrize("every", [1, 2, 4])
def test_left_overs_of_an_optimizer_that_is_not_due_in_each_step(every: int) -> None:
    """The generator is the first optimizer; the discriminator, number 1, is due less often, and its gradients stay."""
    job = Gan()
    is_left = False
    for step in range(10 * every):
        job.calls("01" if is_left else "")
        job.first_optimizer()
        job.look(STEP_NS // 2)
        if step % every == 0:
            overflows = step == 3 * every
            job.calls("1" if overflows else "")
            for folder in RANKS if overflows or is_left else ():
                note = Note("skipped", 1, {"step": job.step, "optimizer": 1}) if overflows else None
                job.watch.feed(folder, note or Note("taken", 1, {"optimizer": 1}), job.now_ns)
            is_left = overflows
        job.look(STEP_NS // 2)
    assert job.told == [] and not job.watch.settling


def test_steps_that_take_long_are_not_held_too_long_together() -> None:
    """What is held is judged by the step that is open, not by the first of a row."""
    job = Gan()
    for _ in range(SKIPPED_IN_A_ROW - 2):
        job.iterate(overflows=True)
        job.look(LONGEST_HELD_NS // 3)
    job.iterate(LATER)
    assert job.told == [] and not job.watch.settling


def test_what_may_be_left_over_is_told_at_the_jobs_end_however_long_no_step_follows() -> None:
    """The rank hangs, say, in the next one: nothing says that the value was left over."""
    job = Gan(several=False)
    job.iterate(5, left=False)
    for source in (SKIPPED, TAKEN):
        job.calls("1")
        job.first_optimizer(source)
        job.look(STEP_NS)
    job.look(2 * LONGEST_HELD_NS)
    assert job.told == []
    job.look(STEP_NS, ended=True)
    assert job.told == [("1", "5.2")]
