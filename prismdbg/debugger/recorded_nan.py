"""From which step on a NaN is the one that the capsule was made for."""

from __future__ import annotations

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.errors import PrismError
from prismdbg.log.columns import read_whole


def nan_since(capsule: Capsule) -> int:
    """Its step, if the replayed rank has other NaN or Inf before it, as overflows that its gradient scaler skipped are;
    else 0, also where the log cannot be read."""
    incident = capsule.manifest.incident
    if incident.kind is not IncidentKind.NAN or incident.moment is None:
        return 0
    try:
        log = read_whole(capsule.log)
    except PrismError:
        return 0
    is_before = (log.step >= capsule.manifest.moment_a.step) & (log.step < incident.moment.step)
    return incident.moment.step if (log.nonfinite & is_before).any() else 0
