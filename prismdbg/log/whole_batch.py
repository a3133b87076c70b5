"""A whole log as one batch: how far its rank came."""

from __future__ import annotations

import numpy as np

from prismdbg.capsule.log.batch import Batch, Key
from prismdbg.log.columns import NOT_ENDED, LogColumns
from prismdbg.log.distinct import kinds_of


def whole_batch(log: LogColumns) -> Batch:
    """Without gaps, waits and notable collectives: these count only while the job runs."""
    if not len(log):
        return Batch()
    threads = np.unique(log.thread)
    return Batch(
        reached=_reached(log),
        issued_ns={int(thread): int(log.begun_ns[log.thread == thread].max()) for thread in threads},
        open=[log.collective(int(row)) for row in np.flatnonzero(log.ended_ns == NOT_ENDED)],
        last=log.collective(len(log) - 1),
    )


def _reached(log: LogColumns) -> dict[Key, int]:
    """Thousands of keys, of groups and pairs of ranks, unless the program has another tag for each message."""
    op, root, tag = (np.where(log.is_p2p, column, -1) for column in (log.op, log.root, log.tag))
    rows, kind = kinds_of(log.group, log.is_p2p.astype(np.int64), op, root, tag)
    highest = np.full(len(rows), -1, dtype=np.int64)
    np.maximum.at(highest, kind, log.seq)
    return {_key(log, row): seq for row, seq in zip(rows.tolist(), highest.tolist(), strict=True)}


def _key(log: LogColumns, row: int) -> Key:
    group = log.texts.get(int(log.group[row]), "")
    if not log.is_p2p[row]:
        return (group,)
    return group, log.texts.get(int(log.op[row]), ""), int(log.root[row]), int(log.tag[row])
