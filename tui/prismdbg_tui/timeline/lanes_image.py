"""The timeline as numbers a cell: which family of collectives holds it, for how much of its time, and the waits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prismdbg_tui.drawing import figures
from prismdbg_tui.timeline.axis import Axis, View
from prismdbg_tui.timeline.op_families import FAMILIES
from prismdbg_tui.timeline.rank_sets import Lanes
from prismdbg_tui.timeline.recording import Recording

MAX_LABELLED = 400
LEAST_LABEL = 6
MOST_HATCHED = 100_000  # rows in view; with more of them no single wait is wider than a cell
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
    """lanes x cells: `family` of the most time, `covered` and `waited` from 0 to 1, and whether a NaN or Inf passed."""

    family: NDArray[np.int64]
    covered: Floats
    waited: Floats
    nonfinite: NDArray[np.bool_]
    labels: tuple[Label, ...]


def paint(recording: Recording, lanes: Lanes, axis: Axis, view: View, width: int) -> LanesImage:
    rank_sets = len(recording.rank_sets.all)
    part = axis.rows(view.start, view.start + view.span)
    scale = width / view.span
    begin = np.clip((axis.begin[part] - view.start) * scale, 0, width)
    end = np.clip((axis.end[part] - view.start) * scale, 0, width)
    is_open = recording.columns.ended_ns[part] < 0
    if axis.by_time:  # nobody knows when it ends: its last cell is not cut to a part either
        end = np.where(is_open, np.ceil(end), end)
    rank_set = recording.rank_sets.of[part]
    shares = lanes.shares(rank_sets)
    row = rank_set * _F + recording.family[part]
    covered = shares @ _coverage(row, begin, end, rank_sets * _F, width).reshape(rank_sets, _F * width)
    never_ended = np.flatnonzero(is_open)
    if lanes.by_rank and len(never_ended):  # whether others ever came to it, our log does not know
        rows = (row[never_ended], begin[never_ended], end[never_ended])
        ours_alone = _coverage(*rows, rank_sets * _F, width).reshape(rank_sets, _F * width)
        covered -= (1.0 - _known(lanes)) * (shares @ ours_alone)
    by_family = covered.reshape(len(lanes), _F, width)
    waited = np.zeros((rank_sets, width))
    if axis.by_time and part.stop - part.start <= MOST_HATCHED:
        beyond = np.clip((axis.begin[part] + recording.waited_for_others_ns[part] - view.start) * scale, begin, end)
        long = np.flatnonzero(beyond - begin > 0)
        waited = _coverage(rank_set[long], begin[long], beyond[long], rank_sets, width)
    return LanesImage(
        family=by_family.argmax(axis=1),
        covered=np.clip(by_family.sum(axis=1), 0.0, 1.0),
        waited=np.minimum(_known(lanes) * (shares @ waited), 1.0),
        nonfinite=(shares @ _nonfinite(recording, axis, view, width)) > 0,
        labels=_labels(recording, lanes, part, begin, end, by_time=axis.by_time),
    )


def _known(lanes: Lanes) -> Floats:
    """A column of 1 where the lane's waits are in the record: others' are not, they are seen through our rank."""
    return np.array([[0.0 if lanes.by_rank and not lane.is_own else 1.0] for lane in lanes.all])


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


def _nonfinite(recording: Recording, axis: Axis, view: View, width: int) -> Floats:
    found = np.zeros((len(recording.rank_sets.all), width))
    rows = recording.nonfinite
    cells = ((axis.begin[rows] - view.start) * (width / view.span)).astype(np.int64)
    seen = (cells >= 0) & (cells < width)
    found[recording.rank_sets.of[rows[seen]], cells[seen]] = 1.0
    return found


def _labels(
    recording: Recording, lanes: Lanes, part: slice, begin: Floats, end: Floats, *, by_time: bool
) -> tuple[Label, ...]:
    """Where a block is wide enough to carry its name; and how long it took, where there is room for that, too."""
    wide = np.flatnonzero((np.floor(end) - np.ceil(begin)) >= LEAST_LABEL)
    if len(wide) > MAX_LABELLED:
        return ()
    labels = []
    free = [0] * len(lanes)  # collectives may overlap, their names may not
    for index in wide.tolist():
        row = part.start + index
        cell, room = int(np.ceil(begin[index])), int(np.floor(end[index])) - int(np.ceil(begin[index]))
        text = _text(recording, row, room - 2, by_time=by_time)
        for number, lane in enumerate(lanes.all):
            if int(recording.rank_sets.of[row]) in lane.rank_sets and (lane.is_own or not lanes.by_rank):
                start = cell + (room - len(text)) // 2
                if start > free[number]:
                    labels.append(Label(number, start, text))
                    free[number] = start + len(text)
    return tuple(labels)


def _text(recording: Recording, row: int, room: int, *, by_time: bool) -> str:
    name, took = recording.label(row), recording.took_ns(row)
    if by_time:
        long = f"{name} {recording.open_word(row) if took is None else figures.duration(took)}"
        if len(long) <= room:
            return long
    return figures.cut(name, room)
