"""Incidents that were seen while the job ran and that its logs, as they are now, do not tell of by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prismdbg.capsule.incident_traits import TRAITS
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.diagnosis.evidence import Evidence, SeenIncident
from prismdbg.diagnosis.failures import Died, Exited, Raised
from prismdbg.diagnosis.stack_positions import position_lines
from prismdbg.diagnosis.verdict import Certainty, Verdict
from prismdbg.model.collective import State
from prismdbg.model.moment import Moment

_AFTER_ALL = 1 << 62
_TOLD_BY = {  # kinds of verdicts that tell of the same
    IncidentKind.HANG: ("stopped",),
    IncidentKind.NAN: ("nonfinite",),
    IncidentKind.EXCEPTION: ("raised",),
    IncidentKind.OUT_OF_MEMORY: ("raised",),
    IncidentKind.LOST: ("died",),
    IncidentKind.SLOW: ("delay", "straggler", "earlier_straggler"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedIncident(Verdict):
    """`stands`: where the ranks stood, as far as their stacks were taken. attempt: of the job, from 0; is_earlier:
    the job was restarted since. completed_ns: how long the call of a hang took that completed after all."""

    incident: Incident
    attempt: int
    is_earlier: bool
    stands: tuple[str, ...]
    completed_ns: int | None = None

    kind = "incident"

    @property
    def moment(self) -> Moment | None:
        return self.incident.moment

    @property
    def text(self) -> str:
        before = f" (attempt {self.attempt + 1})" if self.attempt or self.is_earlier else ""
        text = f"{self.incident.kind}{before}: {self.incident.text}"
        if self.completed_ns is None:
            return text
        return (
            f"{text}; but the log of rank {self.ranks[0]} shows that it completed after {self.completed_ns / 1e9:.1f} s"
        )

    @property
    def lines(self) -> tuple[str, ...]:
        return self.stands

    def details(self) -> dict[str, Any]:
        details = {"incident": str(self.incident.kind), "attempt": self.attempt}
        return details | ({} if self.completed_ns is None else {"completed_ns": self.completed_ns})


def find_recorded_incidents(evidence: Evidence, verdicts: Sequence[Verdict]) -> Iterator[RecordedIncident]:
    """Those that no verdict tells of, and those of earlier attempts, whose logs are not looked at. What a rank raised
    that failed after another one is told with that one."""
    told = {verdict.kind for verdict in verdicts}
    followers = {rank for one in verdicts if isinstance(one, Raised | Died | Exited) for rank in one.followers}
    for seen in evidence.incidents:
        if TRAITS[seen.incident.kind].is_asked_for:
            continue
        only_one_log = evidence.of_capsule and seen.incident.kind is IncidentKind.HANG
        follows = TRAITS[seen.incident.kind].is_raised and followers.issuperset(seen.ranks)
        is_told = follows or bool(told.intersection(ways_to_tell(seen.incident)))
        came_later = _came_later(seen.incident, verdicts)
        is_told &= not came_later and not _is_over(evidence, seen)
        if seen.attempt != evidence.attempt or only_one_log or not is_told:
            found = _recorded_incident(evidence, seen)
            yield replace(found, began_wall_ns=_AFTER_ALL) if came_later else found


def _is_over(evidence: Evidence, seen: SeenIncident) -> bool:
    """A hang whose call completed after all: where the job stopped at last is another matter."""
    return seen.incident.kind is IncidentKind.HANG and _completed_ns(evidence, seen) is not None


def _came_later(incident: Incident, verdicts: Sequence[Verdict]) -> bool:
    """A NaN or Inf that was the first one anew, in a step after those of which the verdicts tell."""
    if incident.kind is not IncidentKind.NAN or incident.moment is None:
        return False
    steps = [each.moment.step for each in verdicts if each.kind in ways_to_tell(incident) and each.moment is not None]
    return bool(steps) and incident.moment.step > max(steps)


def ways_to_tell(incident: Incident) -> tuple[str, ...]:
    """The kinds of verdicts that tell of it."""
    return _TOLD_BY.get(incident.kind, ())


def _recorded_incident(evidence: Evidence, seen: SeenIncident) -> RecordedIncident:
    is_hang = seen.incident.kind is IncidentKind.HANG and seen.attempt == evidence.attempt
    completed_ns = _completed_ns(evidence, seen) if is_hang else None
    return RecordedIncident(
        certainty=Certainty.CERTAIN if completed_ns is None else Certainty.HINT,
        began_wall_ns=0,  # it was told first
        ranks=seen.ranks,
        incident=seen.incident,
        attempt=seen.attempt,
        is_earlier=seen.attempt < evidence.attempt,
        stands=tuple(position_lines(evidence.stacks)) if is_hang else (),
        completed_ns=completed_ns,
    )


def _completed_ns(evidence: Evidence, seen: SeenIncident) -> int | None:
    """How long the call of a hang took on the rank that waited longest; None where its log does not say that it
    completed."""
    moment, log = seen.incident.moment, evidence.columns.get(seen.ranks[0]) if seen.ranks else None
    if moment is None or log is None:
        return None
    row = log.row_at(moment)
    if row == len(log) or log.moment(row) != moment:
        return None
    call = log.collective(row)
    if call.state is not State.COMPLETED or call.time_completed_ns is None:
        return None
    return call.time_completed_ns - call.time_created_ns
