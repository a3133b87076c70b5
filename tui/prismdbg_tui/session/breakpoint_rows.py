"""Which recorded collectives a stop is about, as far as the record alone can tell: for marks, not for stopping."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.model.moment import Moment
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg_tui.timeline.recording import Recording

MOST_MARKED = 2000


def rows_of_breakpoint(recording: Recording, stop: BreakpointSpec) -> NDArray[np.int64]:
    """Empty where it depends on values: it may be anywhere."""
    columns = recording.columns
    if stop.kind is BreakpointKind.NAN and not stop.whole_condition:
        return recording.nonfinite[:MOST_MARKED]
    at = stop.moment
    if stop.kind is not BreakpointKind.COLLECTIVE or (stop.condition and at is None) or stop.module:
        return np.zeros(0, dtype=np.int64)
    mask = np.ones(len(recording), dtype=np.bool_)
    if stop.op:
        mask &= np.isin(columns.op, [code for code, label in recording.labels.items() if label == stop.op])
    if stop.group:
        groups = [n for n, group in enumerate(recording.rank_sets.groups) if stop.group in (group.title, group.name)]
        mask &= np.isin(recording.rank_sets.group_of, groups)
    if stop.seq is not None:
        mask &= columns.seq == stop.seq
    if stop.file:
        mask &= np.isin(columns.stack, _stacks(recording, stop.file, stop.line))
    if at is not None:
        mask &= columns.step == at.step
        mask &= columns.nth == at.collective if at.collective else True
    return np.flatnonzero(mask)[:MOST_MARKED]


def breakpoint_at(recording: Recording, stops: tuple[BreakpointSpec, ...], row: int) -> BreakpointSpec | None:
    """The one that was set on just this collective."""
    at = Moment(int(recording.columns.step[row]), int(recording.columns.nth[row]))
    return next((stop for stop in stops if stop.kind is BreakpointKind.COLLECTIVE and stop.moment == at), None)


def _stacks(recording: Recording, file: str, line: int | None) -> list[int]:
    found = []
    for stack in np.unique(recording.columns.stack).tolist():
        for frame in recording.columns.frames(stack):
            if frame.line == line and (frame.filename == file or frame.filename.endswith(f"/{file}")):
                found.append(stack)
                break
    return found
