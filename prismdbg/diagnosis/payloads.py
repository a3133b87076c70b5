"""What ranks put into their reductions, by fingerprints: only zeros, or all of them the same bits.

Small tensors are left out: a flag or a count is often zero, and equal everywhere. Both are hints: a bucket of unused
parameters is zero, and what is averaged although it is equal already is equal, on purpose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from prismdbg.diagnosis.cross_rank import is_op
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.verdict import Call, Certainty, Verdict
from prismdbg.diagnosis.wording import place, rank_list
from prismdbg.log.distinct import kinds_of
from prismdbg.log.segment import Ints
from prismdbg.model import dtypes
from prismdbg.model.collective import Collective, Group, TensorMeta
from prismdbg.model.fingerprint_arithmetic import as_signed, of_zeros
from prismdbg.model.moment import Moment
from prismdbg.model.ops import Movement, ops_of
from prismdbg.model.plurals import counted

FEWEST_STEPS = 8
FEWEST_ELEMENTS = 256
_OPS = ops_of(Movement.ALL_REDUCE, Movement.REDUCE_SCATTER)
_SUMS = [dtypes.REDUCE_OPS.index(name) for name in ("SUM", "AVG")]


@dataclass(frozen=True, slots=True)
class _Kind:
    """Reductions that a program does again and again: of one line, of one size."""

    op: str
    line: str
    inputs: tuple[TensorMeta, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload(Verdict):
    """`call`: the first of them. steps: in how many it was so, up to the log's end."""

    what: str
    call: Call
    group: Group
    steps: int

    kind = "payload"

    @property
    def moment(self) -> Moment:
        return self.call.collective.moment

    @property
    def text(self) -> str:
        call = self.call.collective
        where = f"{call.name} of group {self.group.title}, in {counted(self.steps, 'step')} from {call.moment} on"
        return f"{rank_list(self.ranks)} {self.what} in {where}{place(call)}"

    @property
    def lines(self) -> tuple[str, ...]:
        return (self.call.text,)

    def details(self) -> dict[str, Any]:
        return {"what": self.what, "group": self.group.name, "steps": self.steps, "call": self.call.to_json()}


def find_payloads(evidence: Evidence) -> Iterator[Verdict]:
    """For each kind of reduction: who sent only zeros to the end; else whether all members sent the same."""
    for (name, _), by_rank in _reductions(evidence).items():
        group = evidence.group(name)
        zeros = {rank: rows for rank, found in by_rank.items() if len(rows := _zeros_to_the_end(evidence, rank, found))}
        if zeros:
            plural = "sends" if len(zeros) == 1 else "send"
            yield _verdict(evidence, group, zeros, f"{plural} only zeros")
        elif 1 < group.size == len(by_rank) and _all_same(evidence, by_rank):
            yield _verdict(
                evidence, group, {rank: found.rows for rank, found in by_rank.items()}, "send identical bits"
            )


@dataclass(slots=True)
class _Rows:
    """One rank's reductions of one kind, in order. zero: the fingerprint of such tensors full of zeros."""

    rows: Ints
    zero: int


def _reductions(evidence: Evidence) -> dict[tuple[str, _Kind], dict[int, _Rows]]:
    """By group and kind, then by rank. One of each kind is decoded."""
    found: dict[tuple[str, _Kind], dict[int, _Rows]] = defaultdict(dict)
    for rank, log in evidence.columns.items():
        sums = is_op(log, _OPS) & np.isin(log.reduce_op, _SUMS) & log.has_fingerprint & ~log.sent_nonfinite
        rows = np.flatnonzero(sums)
        if not len(rows):
            continue
        one_of_each, kinds = kinds_of(log.group[rows], log.op[rows], log.stack[rows], log.tensors[rows])
        by_kind = np.split(rows[np.argsort(kinds, kind="stable")], np.cumsum(np.bincount(kinds))[:-1])
        for one, same in zip(rows[one_of_each].tolist(), by_kind, strict=True):
            call = log.collective(one)
            if sum(prod(tensor.shape) for tensor in call.inputs) < FEWEST_ELEMENTS:
                continue
            kind = _Kind(call.op, str(call.source), call.inputs)
            known = found[call.group, kind].setdefault(rank, _Rows(rows[:0], _zero(call)))
            known.rows = np.sort(np.append(known.rows, same))
    return found


def _zero(call: Collective) -> int:
    sizes = (prod(tensor.shape) * dtypes.ITEM_BYTES.get(tensor.dtype, 0) for tensor in call.inputs)
    return as_signed(of_zeros(sizes))


def _zeros_to_the_end(evidence: Evidence, rank: int, found: _Rows) -> Ints:
    """The last of them, as far back as all are zero; none where these are not enough steps."""
    log = evidence.columns[rank]
    other = np.flatnonzero(log.fingerprint[found.rows] != found.zero)
    rows = found.rows[int(other[-1]) + 1 if len(other) else 0 :]
    return rows if len(np.unique(log.step[rows])) >= FEWEST_STEPS else rows[:0]


def _all_same(evidence: Evidence, by_rank: Mapping[int, _Rows]) -> bool:
    """Whether in every collective all ranks sent the same, and not the same every time."""
    logs = [(evidence.columns[rank], found.rows) for rank, found in by_rank.items()]
    seq, value, step = (
        np.concatenate([getattr(log, name)[rows] for log, rows in logs]) for name in ("seq", "fingerprint", "step")
    )
    order = np.argsort(seq)
    starts = np.flatnonzero(np.diff(seq[order], prepend=-1))
    alike = np.minimum.reduceat(value[order], starts) == np.maximum.reduceat(value[order], starts)
    differ = len(np.unique(value)) > len(starts) // 2
    return bool(alike.all()) and differ and len(np.unique(step)) >= FEWEST_STEPS


def _verdict(evidence: Evidence, group: Group, rows: Mapping[int, Ints], what: str) -> Payload:
    calls = {rank: evidence.columns[rank].collective(int(each[0])) for rank, each in rows.items()}
    first = min(calls, key=lambda rank: calls[rank].moment)
    call = calls[first]
    return Payload(
        certainty=Certainty.HINT,
        began_wall_ns=evidence.wall_ns(first, call.time_created_ns),
        ranks=tuple(sorted(rows)),
        what=what,
        call=Call(rank=first, collective=call),
        group=group,
        steps=len(np.unique(evidence.columns[first].step[rows[first]])),
    )
