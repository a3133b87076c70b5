"""NaN or Inf around steps that a gradient scaler skipped: `why` and `record` decide it by one rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.capsule.log.events import Completion, Event
from prismdbg.capsule.log.format import StepSource
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.nonfinite import FirstNonfinite
from prismdbg.diagnosis.skipped_steps import may_be_left
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.diagnosis.why import diagnose
from prismdbg.jobs.record.incidents import SETTLE_NS, IncidentWatch, Wanted, parse_triggers
from prismdbg.model.collective import State
from tests.unit.followed import followed
from tests.unit.logs import MILLISECOND_NS, Job

FINE, SKIPPED, TAKEN = "fine", "skipped", "taken with NaN"


def gan(parts: Sequence[str]) -> Job:
    """Two ranks. SKIPPED: rank 1 sends NaN, and the scaler skips the step; TAKEN: both send it."""
    job = Job(2)
    for rank in job.ranks:
        job.note(rank, "scaler")
    for part in parts:
        job.call()
        sends = {FINE: (), SKIPPED: (1,), TAKEN: (1, 0)}[part]
        job.call(sends_nan=sends, receives_nan=job.ranks if sends else (), late_ns={1: 1000})
        for rank in job.ranks:
            job.now_ns += MILLISECOND_NS
            job.next_step(rank)
            if part == SKIPPED:
                marks = job.logs[rank].steps
                marks[-1] = replace(marks[-1], source=StepSource.SKIPPED_BY_SCALER)
        job.now_ns += 3 * SETTLE_NS
    job.call()
    return job


def why(job: Job) -> list[FirstNonfinite]:
    evidence = Evidence(logs=job.logs, world_size=2, ended_wall_ns=job.now_ns + 10**9)
    return [verdict for verdict in diagnose(evidence).verdicts if isinstance(verdict, FirstNonfinite)]


def incidents(job: Job) -> list[Wanted]:
    """As `record` sees them, event by event."""
    watch = IncidentWatch(parse_triggers("nan"))
    timed: list[tuple[int, str, Event]] = []
    for rank, log in job.logs.items():
        for group in log.groups.values():
            watch.feed(str(rank), group, 0)
        timed += [(note.time_ns, str(rank), note) for note in log.notes]
        timed += [(mark.time_ns, str(rank), mark) for mark in log.steps]
        for call in log.collectives:
            issued = replace(call, state=State.SCHEDULED, time_completed_ns=None, received_nonfinite=False)
            timed += [(call.time_created_ns, str(rank), issued)]
            timed += [(call.time_completed_ns or 0, str(rank), Completion(call))]
    wanted = []
    for now_ns, folder, event in sorted(timed, key=lambda one: one[0]):
        wanted += watch.due(now_ns, False)
        for each in followed([event]):
            watch.feed(folder, each, now_ns)
    return wanted + watch.due(job.now_ns + 10 * SETTLE_NS, True)


def test_what_is_left_of_a_skipped_step_is_told_with_it() -> None:
    job = gan([FINE] * 3 + [SKIPPED, TAKEN] + [FINE] * 3)
    (nan,) = why(job)
    assert (nan.ranks, str(nan.moment), nan.was_skipped, nan.lasted) == ((1,), "3.2", True, False)
    assert nan.came_again is None and incidents(job) == []


def test_what_comes_in_steps_that_are_taken_after_it_lasts_and_began_there() -> None:
    job = gan([FINE] * 3 + [SKIPPED, TAKEN, TAKEN] + [FINE] * 3)
    (nan,) = why(job)
    assert (nan.ranks, str(nan.moment), nan.certainty) == ((1,), "3.2", Certainty.CERTAIN)
    assert nan.came_again is not None
    assert "NaN or Inf came again in a step that was not skipped: rank 0 at 4.2: all_reduce" in nan.lines[-1]
    (wanted,) = incidents(job)
    assert (wanted.folder, str(wanted.incident.moment)) == ("1", "3.2")
    assert wanted.incident.text.startswith("rank 1 sends the first NaN or Inf: all_reduce")


def test_what_comes_after_a_step_without_any_is_told_first() -> None:
    job = gan([SKIPPED, TAKEN, FINE, FINE, TAKEN, FINE])
    lasting, overflow = why(job)
    assert [str(lasting.moment), str(overflow.moment)] == ["4.2", "0.2"]
    assert (lasting.certainty is not Certainty.HINT, overflow.certainty) == (True, Certainty.HINT)
    (wanted,) = incidents(job)
    assert str(wanted.incident.moment) == "4.2"


@pytest.mark.parametrize("is_taken_again", [True, False])
def test_an_optimizer_that_took_no_step_since_has_not_got_over_it(is_taken_again: bool) -> None:
    job = gan([FINE] * 2)
    for late in range(3):
        job.call(sends_nan={1} if late == 0 else (), receives_nan=job.ranks if late == 0 else ())
        for rank in job.ranks:
            job.next_step(rank)
            if late == 0:
                job.note(rank, "skipped", step=2, optimizer=1)
            elif is_taken_again and late == 2:
                job.note(rank, "taken", optimizer=1)
        job.now_ns += 3 * SETTLE_NS
    job.steps(1, lasting_ns=3 * SETTLE_NS)
    (nan,) = why(job)
    assert str(nan.moment) == "2.2" and nan.was_another
    assert [str(wanted.incident.moment) for wanted in incidents(job)] == ([] if is_taken_again else ["2.2"])


@given(st.lists(st.sampled_from([FINE, SKIPPED, TAKEN]), min_size=1, max_size=7))
def test_the_first_incident_is_what_why_names_first(parts: list[str]) -> None:
    """Of at most seven steps, so that no row of skipped ones is an incident by its length."""
    job = gan(parts)
    told, found = incidents(job), why(job)
    if told:
        assert (told[0].incident.moment, told[0].folder) == (found[0].moment, str(found[0].call.rank)), parts
    elif found:
        assert found[0].was_skipped and found[0].came_again is None and len(found) == 1, parts


@pytest.mark.parametrize(("steps", "gap", "left"), [(8, 1, True), (9, 1, False), (10, 5, True), (11, 5, False)])
def test_gradients_are_left_over_for_a_while_only(steps: int, gap: int, left: bool) -> None:
    """An optimizer that is due in every fifth step may have set none to zero for ten."""
    assert may_be_left(steps, gap) is left
