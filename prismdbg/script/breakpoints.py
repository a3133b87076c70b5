"""A script's stops as the session's."""

from __future__ import annotations

from prismdbg.script.language import Forbid, StopAt
from prismdbg.session.breakpoints import BreakpointSpec


def spec_of(stop: StopAt) -> BreakpointSpec:
    return BreakpointSpec(
        kind=stop.on,
        op=stop.op,
        group=stop.group,
        seq=stop.seq.value if stop.seq is not None else None,
        file=stop.line.file if stop.line is not None else "",
        line=stop.line.line if stop.line is not None else None,
        module=stop.module,
        peer=stop.peer.value if stop.peer is not None else None,
        condition=stop.when.text if stop.when is not None else "",
        expression=stop.value.text if stop.value is not None else "",
        ignore=stop.ignore.value,
        once=stop.once,
    )


def forbidding(forbidden: Forbid) -> BreakpointSpec:
    """Once is enough."""
    condition = forbidden.when.text if forbidden.when is not None else ""
    return BreakpointSpec(kind=forbidden.on, condition=condition, once=True)
