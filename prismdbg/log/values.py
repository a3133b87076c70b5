"""Columns of a log that is held as values."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import prod
from typing import Any

import numpy as np

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.records import RecordDecoder
from prismdbg.log.columns import NOT_ENDED, Bodies, LogColumns
from prismdbg.log.segment import Ints
from prismdbg.model import dtypes
from prismdbg.model.collective import Collective, State
from prismdbg.model.fingerprint_arithmetic import as_signed

_64_BITS = (1 << 64) - 1


class Values(LogColumns):
    """Of which each row is there already."""

    rows: list[Collective]

    def collective(self, row: int) -> Collective:
        return self.rows[row]

    def only(self, rows: Ints) -> Values:
        found = super().only(rows)
        assert isinstance(found, Values)
        found.rows = [self.rows[row] for row in rows.tolist()]
        return found


def of_values(log: RankLog) -> Values:
    rows = list(log.collectives)
    texts, stacks = _Numbers(), _Numbers()
    texts.number(""), stacks.number(())

    def ints(of: Callable[[Collective], int]) -> Ints:
        """In 64 bits, as in the columns of a log: a damaged one may have any number, and any shape."""
        return np.array([as_signed(of(row) & _64_BITS) for row in rows], dtype=np.int64)

    def truths(of: Callable[[Collective], bool]) -> Any:
        return np.array([of(row) for row in rows], dtype=np.bool_)

    zero = np.zeros(len(rows), dtype=np.int64)
    columns = Values(
        rank=log.rank,
        pid=log.pid,
        wall_offset_ns=log.wall_offset_ns,
        record_id=ints(lambda c: c.record_id),
        step=ints(lambda c: c.moment.step),
        nth=ints(lambda c: c.moment.collective),
        op=ints(lambda c: texts.number(c.op)),
        group=ints(lambda c: texts.number(c.group)),
        seq=ints(lambda c: c.identity.seq),
        size_bytes=ints(_size_bytes),
        begun_ns=ints(lambda c: c.time_created_ns),
        ended_ns=ints(lambda c: NOT_ENDED if c.time_completed_ns is None else c.time_completed_ns),
        waited_ns=ints(lambda c: NOT_ENDED if c.time_waited_ns is None else c.time_waited_ns),
        waiting_thread=ints(lambda c: c.waiting_thread_id),
        root=ints(lambda c: c.root),
        tag=ints(lambda c: c.tag),
        thread=ints(lambda c: c.thread_id),
        stack=ints(lambda c: stacks.number(c.frames)),
        fingerprint=ints(lambda c: c.fingerprint or 0),
        reduce_op=ints(lambda c: dtypes.REDUCE_OPS.index(c.reduce_op) if c.reduce_op else fmt.NO_REDUCE_OP),
        tensors=ints(lambda c: hash((c.inputs, c.outputs))),
        first_type=ints(_first_type),
        source_rank=ints(lambda c: c.source_rank),
        payload_segment=ints(lambda c: -1 if c.payload is None else c.payload.segment),
        has_fingerprint=truths(lambda c: c.fingerprint is not None),
        is_async=truths(lambda c: c.is_async),
        is_p2p=truths(lambda c: c.is_p2p),
        on_device=truths(lambda c: c.is_on_device),
        sent_late=truths(lambda c: c.is_on_device and c.state is not State.SCHEDULED),
        sent_nonfinite=truths(lambda c: c.sent_nonfinite),
        received_nonfinite=truths(lambda c: c.received_nonfinite),
        failed=truths(lambda c: c.state is State.FAILED),
        has_payload=truths(lambda c: c.payload is not None),
        synthesized=truths(lambda c: c.synthesized),
        steps=log.steps,
        groups=log.groups,
        notes=log.notes,
        damage=None,
        records=RecordDecoder(texts.by_number()),
        bodies=Bodies(parts=[], issue_segment=zero, issue_slot=zero, complete_segment=zero, complete_slot=zero),
    )
    columns.records.stacks.update(stacks.by_number())
    columns.rows = rows
    return columns


class _Numbers:
    """Each value once, in the order in which they came."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def number(self, value: Hashable) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def by_number(self) -> dict[int, Any]:
        return {number: value for value, number in self._numbers.items()}


def _first_type(call: Collective) -> int:
    return next((dtypes.NUMBERS.get(each.dtype, 0) for each in (*call.inputs, *call.outputs)), -1)


def _size_bytes(call: Collective) -> int:
    """As in the columns of a log: what is sent, or received where nothing is sent."""
    tensors = call.inputs or call.outputs
    return sum(prod(tensor.shape) * dtypes.ITEM_BYTES.get(tensor.dtype, 0) for tensor in tensors)
