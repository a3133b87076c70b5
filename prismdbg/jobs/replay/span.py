"""What a capsule spans: the moments from its start to its end that one may ask for."""

from __future__ import annotations

from prismdbg.capsule.manifest import Manifest
from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment


def require_inside(manifest: Manifest, name: str, option: str, moment: Moment | None) -> None:
    """`UsageError` if the option's moment is outside of the capsule of this name. A bare step is its first collective;
    an operator after the last collective is inside."""
    first, last = manifest.moment_a, manifest.moment_b
    if moment is None:
        return
    if moment < first and moment != Moment(first.step):
        problem, instead = f"has no collective before {first}", first
    elif Moment(moment.step, moment.collective) > last:
        problem, instead = f"ends at {last}", last
    else:
        return
    raise UsageError(f"capsule {name} {problem}, but {option} is {moment}", hint=f"{option} {instead}, or leave it out")
