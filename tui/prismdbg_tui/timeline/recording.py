"""What a capsule recorded, ready to be shown: columns, lanes and families. Read once, never changed."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.stacks import HangPlace, JobStacks, capsule_stacks, known_until_ns
from prismdbg.diagnosis.stack_positions import position_lines
from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture.packed_telemetry import packed_telemetry
from prismdbg.log.columns import Bools, LogColumns, read_columns
from prismdbg.model.collective import Frame, Group, Identity
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.session.frames import own_frame
from prismdbg_tui.timeline.op_families import family_of
from prismdbg_tui.timeline.rank_sets import Lanes, find_rank_sets, in_order_of_use, lanes_by_group, lanes_by_rank
from prismdbg_tui.timeline.sensor_row import SensorRow, sensor_rows

Ints = NDArray[np.int64]
DAY_NS = 24 * 3600 * 10**9


class Recording:
    """One rank's log inside a capsule. Rows are collectives in the order of issue."""

    def __init__(self, capsule: Capsule, columns: LogColumns) -> None:
        self.capsule = capsule
        self.columns = columns
        manifest = capsule.manifest
        self.rank_sets = find_rank_sets(columns, {group.name: group for group in manifest.groups}, manifest.rank)
        ops, op_of = in_order_of_use(columns.op)
        families = np.array([family_of(columns.texts.get(code, "")) for code in ops], dtype=np.int64)
        self.family = families[op_of] if len(ops) else columns.op
        self.families = sorted(set(families.tolist()))
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

    def group(self, row: int) -> Group:
        return self.rank_sets.groups[int(self.rank_sets.group_of[row])]

    @cached_property
    def by_group(self) -> Lanes:
        return lanes_by_group(self.rank_sets)

    @cached_property
    def by_rank(self) -> Lanes:
        return lanes_by_rank(self.rank_sets, self.capsule.manifest.rank)

    def took_ns(self, row: int) -> int | None:
        ended = int(self.columns.ended_ns[row])
        return None if ended < 0 else ended - int(self.columns.begun_ns[row])

    def open_word(self, row: int) -> str:
        """What is said of one that has no end: behind B the job went on, only the log was read before that."""
        return "was in flight" if row >= self.beyond else "never ended"

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
    def waited_for_others_ns(self) -> Ints:
        """By how much each was longer than the shortest of the same operator, group and size: nobody is slower to
        send the same; the rest is the wait for whoever came last. Of one that never ended, all of it. On a device none:
        what it took is not only a wait."""
        columns = self.columns
        ended = columns.ended_ns >= 0
        took = np.where(ended, columns.ended_ns - columns.begun_ns, np.iinfo(np.int64).max)
        size = np.unique(columns.size_bytes, return_inverse=True)[1]
        kind = (size * (len(self.rank_sets.all) or 1) + self.rank_sets.of) * (
            int(columns.op.max(initial=0)) + 1
        ) + columns.op
        kinds, of = np.unique(kind, return_inverse=True)
        least = np.full(len(kinds), np.iinfo(np.int64).max)
        np.minimum.at(least, of, took)
        rest = np.where(ended, took - least[of], np.iinfo(np.int64).max // 4)
        return np.where(columns.on_device, 0, rest)

    @cached_property
    def taken(self) -> JobStacks | None:
        """The stacks of all ranks, where a hang was seen; None also where they are damaged."""
        try:
            return capsule_stacks(self.capsule)
        except CapsuleError:
            return None

    @cached_property
    def sensors(self) -> list[SensorRow]:
        """Readings of `record --telemetry`, where the capsule has some."""
        return sensor_rows(packed_telemetry(self.capsule))

    @property
    def whereabouts(self) -> tuple[str, ...]:
        """Where each rank stood at the hang, in words."""
        return tuple(position_lines(self.taken.ranks)) if self.taken is not None else ()

    def hang_at(self, row: int) -> HangPlace | None:
        """What is known of the job's hang, where this row is what it hung in."""
        hang = self.taken.hang if self.taken is not None else None
        identity = Identity(self.group(row).name, int(self.columns.seq[row]))
        return hang if hang is not None and not self.columns.is_p2p[row] and str(identity) == hang.identity else None

    @cached_property
    def log_until_ns(self) -> int:
        """The last that the log tells, on its own clock."""
        columns = self.columns
        return max(int(columns.begun_ns.max(initial=0)), int(columns.ended_ns.max(initial=0)))

    @cached_property
    def seen_until_ns(self) -> int:
        """When the hang was found, or the capsule was made: so long did whatever had not ended go on. The log's end,
        where that is absurd."""
        until_ns = known_until_ns(self.capsule.manifest, self.taken) - self.columns.wall_offset_ns
        return until_ns if 0 < until_ns - self.log_until_ns < DAY_NS else self.log_until_ns

    @cached_property
    def is_nonfinite(self) -> Bools:
        return self.columns.nonfinite

    @cached_property
    def nonfinite(self) -> Ints:
        """Rows that sent or received a NaN or Inf, before anything that they may stand on was made up."""
        rows = np.flatnonzero(self.is_nonfinite)
        return rows[rows < self.made_up_from]

    @cached_property
    def first_sent_nonfinite(self) -> int:
        """-1 where this rank sent none."""
        rows = self.nonfinite[self.columns.sent_nonfinite[self.nonfinite]]
        return int(rows[0]) if len(rows) else -1

    @cached_property
    def made_up_from(self) -> int:
        """The first row that no real peer answered; the number of rows where there is none."""
        rows = np.flatnonzero(self.columns.synthesized)
        return int(rows[0]) if len(rows) else len(self)

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
    """With its telemetry, which takes a while to read: not for the thread that draws."""
    recording = Recording(capsule, read_columns(capsule.log))
    _ = recording.sensors
    return recording


def _short(frame: Frame) -> str:
    return f"{frame.filename.rsplit('/', 1)[-1]}:{frame.line}"


def _label(op: str) -> str:
    return OPS[op].label if op in OPS else op or "?"
