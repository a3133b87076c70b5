"""What the supervisor saw and no verdict tells of is shown, whatever its kind, but for capsules that were asked for."""

from __future__ import annotations

import pytest

from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.diagnosis.evidence import Evidence, SeenIncident
from prismdbg.diagnosis.failures import Died
from prismdbg.diagnosis.recorded_incidents import find_recorded_incidents
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.diagnosis.why import diagnose
from prismdbg.model.moment import Moment
from tests.unit.logs import Job

ASKED_FOR = {IncidentKind.REQUEST, IncidentKind.SIGNAL}


@pytest.mark.parametrize("kind", IncidentKind)
def test_every_kind_is_shown_but_what_was_asked_for(kind: IncidentKind) -> None:
    seen = SeenIncident(incident=Incident(kind=kind, text="seen"), ranks=(1,), attempt=0)
    shown = list(find_recorded_incidents(Evidence(logs={}, incidents=(seen,)), []))
    assert [one.incident.kind for one in shown] == ([] if kind in ASKED_FOR else [kind])


@pytest.mark.parametrize(("attempt", "text"), [(0, "nan: seen"), (2, "nan (attempt 1): seen")])
def test_an_incident_before_a_restart_is_shown_as_that(attempt: int, text: str) -> None:
    seen = SeenIncident(incident=Incident(kind=IncidentKind.NAN, text="seen"), ranks=(1,), attempt=0)
    (shown,) = find_recorded_incidents(Evidence(logs={}, incidents=(seen,), attempt=attempt), [])
    assert shown.text == text


@pytest.mark.parametrize(("ranks", "is_shown"), [((0,), False), ((0, 2), True), ((2,), True)])
def test_what_a_rank_raised_is_told_with_a_death_only_if_it_followed_that(
    ranks: tuple[int, ...], is_shown: bool
) -> None:
    died = Died(certainty=Certainty.CERTAIN, began_wall_ns=1, ranks=(1,), last=None, followers=(0,))
    seen = SeenIncident(incident=Incident(kind=IncidentKind.EXCEPTION, text="seen"), ranks=ranks, attempt=0)
    assert bool(list(find_recorded_incidents(Evidence(logs={}, incidents=(seen,)), [died]))) is is_shown


def test_a_hang_whose_call_completed_is_not_called_certain() -> None:
    job = Job(2)
    job.steps(3)
    job.call(late_ns={1: 2_000_000_000})
    text = "rank 0 waited 6 s in all_reduce; rank 1 never joined it"
    hang = SeenIncident(
        incident=Incident(kind=IncidentKind.HANG, text=text, moment=Moment(3, 1)), ranks=(0, 1), attempt=0
    )
    (shown,) = (one for one in diagnose(Evidence(logs=job.logs, incidents=(hang,))).verdicts if one.kind == "incident")
    assert shown.certainty is Certainty.HINT
    assert shown.text == f"hang: {text}; but the log of rank 0 shows that it completed after 2.0 s"
    assert shown.to_json()["completed_ns"] > 2_000_000_000


def test_another_stop_at_the_end_does_not_tell_of_a_hang_that_was_over() -> None:
    job = Job(3)
    job.steps(3)
    job.call(late_ns={2: 300_000_000_000})
    job.steps(20)
    job.call(without={1}, done=False)
    hang = SeenIncident(
        incident=Incident(kind=IncidentKind.HANG, text="x", moment=Moment(3, 1)), ranks=(0, 2), attempt=0
    )
    found = diagnose(Evidence(logs=job.logs, incidents=(hang,), ended_wall_ns=job.now_ns + 60_000_000_000)).verdicts
    assert [(one.kind, one.moment) for one in found] == [("stopped", Moment(23, 1)), ("incident", Moment(3, 1))]


def test_a_hang_whose_call_did_not_complete_stays_certain() -> None:
    """Where the logs do not tell of it by themselves: one rank's log, as in a capsule."""
    job = Job(2)
    job.call(only={0}, done=False)
    hang = SeenIncident(incident=Incident(kind=IncidentKind.HANG, text="x", moment=Moment(0, 1)), ranks=(0,), attempt=0)
    evidence = Evidence(logs={0: job.logs[0]}, incidents=(hang,), of_capsule=True)
    (shown,) = find_recorded_incidents(evidence, [])
    assert shown.certainty is Certainty.CERTAIN and shown.text == "hang: x"


@pytest.mark.parametrize(("step", "is_shown"), [(2, False), (3, False), (20, True)])
def test_a_nan_that_was_the_first_one_anew_is_shown_beside_the_first_of_all(step: int, is_shown: bool) -> None:
    job = Job(2)
    job.steps(3)
    job.call(sends_nan={1}, receives_nan={0, 1})
    nan = SeenIncident(
        incident=Incident(kind=IncidentKind.NAN, text="seen", moment=Moment(step, 1)), ranks=(1,), attempt=0
    )
    verdicts = diagnose(Evidence(logs=job.logs, incidents=(nan,))).verdicts
    assert [one.kind for one in verdicts if one.kind in ("nonfinite", "incident")] == ["nonfinite"] + [
        "incident"
    ] * is_shown
