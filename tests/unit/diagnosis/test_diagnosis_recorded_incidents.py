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
