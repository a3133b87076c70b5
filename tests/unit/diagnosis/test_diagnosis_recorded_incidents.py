"""What the supervisor saw and no verdict tells of is shown, whatever its kind, but for capsules that were asked for."""

from __future__ import annotations

import pytest

from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.diagnosis.evidence import Evidence, SeenIncident
from prismdbg.diagnosis.recorded_incidents import find_recorded_incidents

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
