"""A whole log as one batch: how far its rank came."""

from __future__ import annotations

import numpy as np

from prismdbg.capsule.log_batch import Batch, Key
from prismdbg.log.columns import NOT_ENDED, LogColumns


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
    """Thousands of keys at most: groups, and pairs of ranks that send to each other."""
    none = np.int64(-1)
    op, root, tag = (np.where(log.is_p2p, column, none) for column in (log.op, log.root, log.tag))
    kinds = np.stack([log.group, log.is_p2p.astype(np.int64), op, root, tag])
    different, kind = np.unique(kinds, axis=1, return_inverse=True)
    highest = np.full(different.shape[1], none)
    np.maximum.at(highest, kind.ravel(), log.seq)
    reached: dict[Key, int] = {}
    for (group, p2p, of, peer, tagged), seq in zip(different.T.tolist(), highest.tolist(), strict=True):
        name = log.texts.get(group, "")
        reached[(name, log.texts.get(of, ""), peer, tagged) if p2p else (name,)] = seq
    return reached
