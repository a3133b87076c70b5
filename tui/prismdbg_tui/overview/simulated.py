"""One rank of a simulated job as a recording is shown: its computations and communication as rows, a lane a channel."""

from __future__ import annotations

from typing import Any

import numpy as np

from prismdbg.capsule.log.records import RecordDecoder
from prismdbg.log.columns import NOT_ENDED, Bodies, LogColumns
from prismdbg.model.collective import Group
from prismdbg.simulate.engine.prepared_cohort import PreparedCohort
from prismdbg.simulate.engine.timeline import Timeline, amount_at
from prismdbg.simulate.graph.entries import Kind
from prismdbg.simulate.graph.mesh import Ints
from prismdbg_tui.timeline.op_families import COMPUTE, FAMILIES, family_of
from prismdbg_tui.timeline.rank_sets import find_rank_sets
from prismdbg_tui.timeline.recording import Recording

_COMPUTE_LANE = "computes"


class SimulatedRecording(Recording):
    """Rows are what takes time, in the order of the program. Nothing of it was recorded; what is waiting for others is
    known, not guessed."""

    sensors = []

    def __init__(self, timeline: Timeline, rank: int) -> None:
        of = timeline.of(rank)
        team, place = timeline.team_of(rank)
        entries = of.entries
        rows = np.flatnonzero((entries.kind <= Kind.RECV) & (of.end_ns > of.start_ns))
        talks = entries.communicates[rows]
        texts = {number + 1: text for number, text in enumerate(entries.texts)}
        lanes = [_COMPUTE_LANE, *entries.channels]
        texts |= {len(entries.texts) + 1 + number: name for number, name in enumerate(lanes)}
        lane = np.where(talks, entries.channel[rows].astype(np.int64) + 1, 0)
        self.columns = _columns(
            rank=rank,
            op=np.where(talks, entries.op[rows], entries.label[rows]).astype(np.int64) + 1,
            group=lane + len(entries.texts) + 1,
            begun_ns=of.start_ns[rows],
            ended_ns=of.end_ns[rows],
            size_bytes=np.where(talks, entries.size_bytes[rows], 0),
            texts=texts,
        )
        self._lines: list[str] = [entries.texts[number] for number in entries.line[rows].tolist()]
        groups = {name: Group(name=name, ranks=(), desc=name) for name in lanes}
        self.rank_sets = find_rank_sets(self.columns, groups, rank)
        compute = FAMILIES.index(COMPUTE)
        family = np.array([0, *(family_of(_joined(text)) for text in entries.texts)], dtype=np.int64)
        self.family = np.where(talks, family[self.columns.op], compute)
        self.families = sorted(set(self.family.tolist()))
        self.labels = {code: texts[code] or "?" for code in set(self.columns.op.tolist())}
        self.first, self.beyond = 0, len(rows)
        self._late_ns = _late(team.crew, place, rows, of.start_ns, of.end_ns)

    @property
    def waited_for_others_ns(self) -> Ints:
        return self._late_ns

    def source(self, row: int) -> str:
        return self._lines[row].rpartition("/")[2]

    @property
    def seen_until_ns(self) -> int:
        return self.log_until_ns


def _joined(text: str) -> str:
    """As the families know operators: `allreduce` of `all_reduce`."""
    return text.replace("all_", "all").replace("to_all", "toall")


def _late(crew: PreparedCohort, place: tuple[int, ...], rows: Ints, start_ns: Ints, end_ns: Ints) -> Ints:
    """Of communication, until the last of the others was there: what is not transfer."""
    late = np.zeros(len(rows), dtype=np.int64)
    for number, entry in enumerate(rows.tolist()):
        call = crew.plan.call_of[entry]
        if call >= 0:
            taken = int(end_ns[entry] - start_ns[entry]) - amount_at(crew.calls[call].transfer_ns, place)
            late[number] = max(taken, 0)
    return late


def _columns(
    *, rank: int, op: Ints, group: Ints, begun_ns: Ints, ended_ns: Ints, size_bytes: Ints, texts: dict[int, str]
) -> LogColumns:
    count = len(op)
    none, zero = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.int64)
    values: dict[str, Any] = dict.fromkeys(_TRUTHS, none) | dict.fromkeys(_NUMBERS, zero)
    return LogColumns(
        **values,
        rank=rank,
        pid=0,
        wall_offset_ns=0,
        record_id=np.arange(count),
        nth=np.arange(1, count + 1),
        op=op,
        group=group,
        size_bytes=size_bytes.astype(np.int64),
        begun_ns=begun_ns.astype(np.int64),
        ended_ns=ended_ns.astype(np.int64),
        waited_ns=np.full(count, NOT_ENDED),
        steps=[],
        groups={},
        notes=[],
        damage=None,
        records=RecordDecoder(texts),
        bodies=Bodies(parts=[], issue_segment=zero, issue_slot=zero, complete_segment=zero, complete_slot=zero),
    )


_TRUTHS = (
    "is_async",
    "is_p2p",
    "on_device",
    "sent_late",
    "sent_nonfinite",
    "received_nonfinite",
    "failed",
    "has_payload",
    "synthesized",
    "has_fingerprint",
)
_NUMBERS = (
    "step",
    "seq",
    "root",
    "tag",
    "thread",
    "stack",
    "source_rank",
    "payload_segment",
    "waiting_thread",
    "fingerprint",
    "reduce_op",
    "tensors",
    "first_type",
)
