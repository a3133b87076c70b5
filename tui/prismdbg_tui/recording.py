"""What a capsule recorded, ready to be shown: columns, lanes and families. Read once, never changed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.graph.log_columns import LogColumns, read_columns
from prismdbg.model.collective import Frame, Group
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.session.frames import own_frame
from prismdbg_tui.families import family_of

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One group, and how many collectives of it there are."""

    group: Group
    code: int
    count: int


class Recording:
    """One rank's log inside a capsule. Rows are collectives in the order of issue."""

    def __init__(self, capsule: Capsule, columns: LogColumns) -> None:
        self.capsule = capsule
        self.columns = columns
        self.lanes = _lanes(capsule, columns)
        numbers = {lane.code: number for number, lane in enumerate(self.lanes)}
        self.lane_of = _mapped(columns.group, numbers)
        ops = np.unique(columns.op).tolist()
        self.family = _mapped(columns.op, {code: family_of(columns.texts.get(code, "")) for code in ops})
        self.families = sorted({family_of(columns.texts.get(code, "")) for code in ops})
        self.labels = {code: _label(columns.texts.get(code, "")) for code in ops}
        self.first = columns.row_at(capsule.manifest.moment_a)
        self.beyond = columns.row_at(capsule.manifest.moment_b)
        if self.beyond < len(columns) and columns.moment(self.beyond) == capsule.manifest.moment_b:
            self.beyond += 1

    def __len__(self) -> int:
        return len(self.columns)

    def label(self, row: int) -> str:
        """`all_reduce`."""
        return self.labels[int(self.columns.op[row])]

    def lane(self, row: int) -> Lane:
        return self.lanes[int(self.lane_of[row])]

    def waited_ns(self, row: int) -> int | None:
        ended = int(self.columns.ended_ns[row])
        return None if ended < 0 else ended - int(self.columns.begun_ns[row])

    def source(self, row: int) -> str:
        """`train.py:61`, the program's own line."""
        return self.source_of_stack(int(self.columns.stack[row]))

    def source_of_stack(self, stack: int) -> str:
        if stack not in self._sources:
            frames = self.columns.frames(stack)
            self._sources[stack] = _short(frames[own_frame(frames)]) if frames else ""
        return self._sources[stack]

    @cached_property
    def _sources(self) -> dict[int, str]:
        return {}

    @cached_property
    def nonfinite(self) -> Ints:
        """Rows that sent or received a NaN or Inf."""
        return np.flatnonzero(self.columns.sent_nonfinite | self.columns.received_nonfinite)

    @cached_property
    def first_sent_nonfinite(self) -> int:
        """-1 where this rank sent none."""
        rows = np.flatnonzero(self.columns.sent_nonfinite)
        return int(rows[0]) if len(rows) else -1

    @cached_property
    def longest_wait_ns(self) -> int:
        waited = self.columns.ended_ns - self.columns.begun_ns
        return int(waited.max(initial=1))

    def exact_row(self, moment: Moment) -> int | None:
        """The row at `moment` itself, None where nothing was recorded there."""
        row = self.columns.row_at(moment)
        found = row < len(self) and (self.columns.step[row], self.columns.nth[row]) == (moment.step, moment.collective)
        return row if found else None


def read_recording(capsule: Capsule) -> Recording:
    return Recording(capsule, read_columns(capsule.log))


def _short(frame: Frame) -> str:
    return f"{frame.filename.rsplit('/', 1)[-1]}:{frame.line}"


def _label(op: str) -> str:
    return OPS[op].label if op in OPS else op or "?"


def _lanes(capsule: Capsule, columns: LogColumns) -> list[Lane]:
    """In the order in which the groups were first used; the manifest's where nothing was issued."""
    codes, first, counts = np.unique(columns.group, return_index=True, return_counts=True)
    known = {group.name: group for group in capsule.manifest.groups} | columns.groups
    lanes = []
    for place in np.argsort(first):
        name = columns.texts.get(int(codes[place]), "")
        group = known.get(name, Group(name=name, ranks=()))
        lanes.append(Lane(group=group, code=int(codes[place]), count=int(counts[place])))
    return lanes


def _mapped(column: Ints, table: dict[int, int]) -> Ints:
    """Each code's number. Codes are a log's text numbers: small where the log is whole, anything where it is not."""
    if not len(column):
        return column
    codes, places = np.unique(column, return_inverse=True)
    return np.array([table[int(code)] for code in codes], dtype=np.int64)[places]
