"""The time line as numbers a cell: which family of collectives holds it, and for how much of its time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prismdbg_tui.axis import Axis, View
from prismdbg_tui.families import FAMILIES
from prismdbg_tui.recording import Recording

MAX_LABELLED = 400
LEAST_LABEL = 6
_F = len(FAMILIES)
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Label:
    """Text over a block, from a cell on."""

    lane: int
    cell: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesImage:
    """lanes x cells: `family` of the most time, `covered` from 0 to 1, and whether a NaN or Inf passed."""

    family: NDArray[np.int64]
    covered: NDArray[np.float64]
    nonfinite: NDArray[np.bool_]
    labels: tuple[Label, ...]


def paint(recording: Recording, axis: Axis, view: View, width: int) -> LanesImage:
    lanes = len(recording.lanes)
    part = axis.rows(view.start, view.start + view.span)
    scale = width / view.span
    begin = np.clip((axis.begin[part] - view.start) * scale, 0, width)
    end = np.clip((axis.end[part] - view.start) * scale, 0, width)
    row = recording.lane_of[part] * _F + recording.family[part]
    covered = _coverage(row, begin, end, lanes * _F, width).reshape(lanes, _F, width)
    return LanesImage(
        family=covered.argmax(axis=1),
        covered=np.minimum(covered.sum(axis=1), 1.0),
        nonfinite=_nonfinite(recording, axis, view, width),
        labels=_labels(recording, part, begin, end),
    )


def _coverage(row: Ints, begin: Floats, end: Floats, rows: int, width: int) -> Floats:
    """How much of each cell is covered: the ends by their part of a cell, what lies between by sums of edges."""
    stride = width + 2
    first = begin.astype(np.int64)
    last = end.astype(np.int64)
    at = row * stride
    inside = np.minimum(end, first + 1) - begin
    # what is far shorter than a cell is still there
    total = np.bincount(at + first, np.maximum(inside, 1e-6), rows * stride).astype(np.float64)
    far = np.flatnonzero(last > first)
    if len(far):
        at, first, last, end = at[far], first[far], last[far], end[far]
        total += np.bincount(at + last, weights=end - last, minlength=rows * stride)
        edges = np.bincount(at + first + 1, minlength=rows * stride).astype(np.float64)
        edges -= np.bincount(at + last, minlength=rows * stride)
        total += np.cumsum(edges.reshape(rows, stride), axis=1).ravel()
    return total.reshape(rows, stride)[:, :width]


def _nonfinite(recording: Recording, axis: Axis, view: View, width: int) -> NDArray[np.bool_]:
    found = np.zeros((len(recording.lanes), width), dtype=np.bool_)
    rows = recording.nonfinite
    cells = ((axis.begin[rows] - view.start) * (width / view.span)).astype(np.int64)
    seen = (cells >= 0) & (cells < width)
    found[recording.lane_of[rows[seen]], cells[seen]] = True
    return found


def _labels(
    recording: Recording, part: slice, begin: NDArray[np.float64], end: NDArray[np.float64]
) -> tuple[Label, ...]:
    """Where a block is wide enough to carry its name."""
    wide = np.flatnonzero((np.floor(end) - np.ceil(begin)) >= LEAST_LABEL)
    if len(wide) > MAX_LABELLED:
        return ()
    labels = []
    for index in wide.tolist():
        row = part.start + index
        cell, room = int(np.ceil(begin[index])), int(np.floor(end[index])) - int(np.ceil(begin[index]))
        text = recording.label(row)
        if len(text) > room:
            text = text[: room - 1] + "…"
        labels.append(Label(int(recording.lane_of[row]), cell + (room - len(text)) // 2, text))
    return tuple(labels)
