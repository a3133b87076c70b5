"""What a capsule spans: the moments from A to B that one may ask for."""

from __future__ import annotations

from prismdbg.capsule.manifest import Manifest
from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment


def require_inside(manifest: Manifest, moment: Moment) -> None:
    """`UsageError` for what lies before A or behind B. A bare step is its first collective; an operator behind the last
    collective lies inside."""
    first, last = manifest.moment_a, manifest.moment_b
    if moment < first and moment != Moment(first.step):
        raise UsageError(f"{moment} is before the capsule's start moment", hint=f"give a moment from {first} to {last}")
    if Moment(moment.step, moment.collective) > last:
        raise UsageError(f"{moment} is after the capsule's end moment", hint=f"give a moment from {first} to {last}")
