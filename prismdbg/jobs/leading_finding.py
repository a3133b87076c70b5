"""The finding that a screen of one capsule leads with: of its run if that is still around it, else of its own log."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Incident
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.recorded_incidents import RecordedIncident, ways_to_tell
from prismdbg.diagnosis.verdict import Verdict
from prismdbg.diagnosis.why import diagnose
from prismdbg.errors import PrismError
from prismdbg.jobs.evidence import gather, of_capsule
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.log.columns import while_folded
from prismdbg.model.moment import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadingFinding:
    """`moment`: where it is on the capsule's own rank; None where that is not known."""

    verdict: Verdict
    moment: Moment | None


def leading_finding(capsule: Capsule) -> LeadingFinding | None:
    """What `why` says of the capsule's incident, or else first; None where it finds nothing."""
    manifest = capsule.manifest
    verdicts = diagnose(_evidence(capsule)).verdicts
    if not verdicts:
        return None
    telling = [verdict for verdict in verdicts if _tells_of(verdict, manifest.incident)]
    telling = [verdict for verdict in telling if _is_over(verdict)] or telling
    of_rank = (verdict for verdict in telling if manifest.rank in verdict.ranks)
    verdict = next(of_rank, (telling or verdicts)[0])
    if telling and manifest.incident.moment is not None:
        return LeadingFinding(verdict=verdict, moment=manifest.incident.moment)
    return LeadingFinding(verdict=verdict, moment=verdict.moment if verdict.ranks[:1] == (manifest.rank,) else None)


def _tells_of(verdict: Verdict, incident: Incident) -> bool:
    return verdict.kind in ways_to_tell(incident) or getattr(verdict, "incident", None) == incident


def _is_over(verdict: Verdict) -> bool:
    """Of a hang that did not last; what stopped at last is told by another verdict, of another moment."""
    return isinstance(verdict, RecordedIncident) and verdict.completed_ns is not None


def _evidence(capsule: Capsule) -> Evidence:
    own = of_capsule(capsule)
    run = capsule.path.resolve().parent.parent
    if not RunFolder(run).run_json.is_file():
        return own
    try:
        found = while_folded(lambda: gather(run))
    except (PrismError, OSError):
        return own  # `why RUN` says what is wrong with it
    return found if _is_of(own, found, capsule.manifest.rank) else own


def _is_of(own: Evidence, run: Evidence, rank: int) -> bool:
    """Whether it is the same process that both recorded: one log starts at one time of one clock."""
    if rank not in own.logs or rank not in run.logs:
        return False
    return bool(run.nodes) or own.logs[rank].wall_offset_ns == run.logs[rank].wall_offset_ns
