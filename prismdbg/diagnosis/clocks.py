"""How far the clocks of a job's nodes are apart: a collective in which everybody waits for everybody ends at nearly the
same time on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import numpy as np

from prismdbg.log.columns import NOT_ENDED, LogColumns
from prismdbg.model.ops import FOR_ALL

_LOOKED_AT = 4096  # of a rank's last collectives
_LEAST = 8  # collectives that two nodes must have in common
_CLEAR = 4  # times the spread: a smaller offset may be chance

_Key = tuple[str, int]  # group and sequence number


def clock_offsets(logs: Mapping[int, LogColumns], nodes: Mapping[int, str]) -> dict[str, int]:
    """Of each node, how many ns its clock is ahead of that of the first rank's node: to be taken off its times. 0 where
    that is not clear."""
    found: dict[str, int] = {}
    first = min((rank for rank in logs if rank in nodes), default=None)
    if first is None:
        return found
    ends = _ends(logs[first])
    for node in sorted(set(nodes.values()) - {nodes[first]}):
        offsets = (_offset(ends, _ends(logs[rank])) for rank in sorted(logs) if nodes.get(rank) == node)
        found[node] = next((offset for offset in offsets if offset is not None), 0)
    return {nodes[first]: 0, **found}


def unknown_clocks(logs: Mapping[int, LogColumns], nodes: Mapping[int, str]) -> frozenset[str]:
    """Nodes that have too few collectives in common with the first rank's node."""
    first = min((rank for rank in logs if rank in nodes), default=None)
    if first is None:
        return frozenset()
    ends = _ends(logs[first])
    known = {nodes[first]} | {
        nodes[rank] for rank in logs if rank in nodes and _offset(ends, _ends(logs[rank])) is not None
    }
    return frozenset(nodes.values()) - known


def _ends(log: LogColumns) -> dict[_Key, int]:
    """When the log's last collectives for all ended, by its own clock."""
    waited_for_all = [number for number, op in log.texts.items() if op in FOR_ALL]
    rows = np.flatnonzero((log.ended_ns != NOT_ENDED) & ~log.failed & np.isin(log.op, waited_for_all))[-_LOOKED_AT:]
    groups = [log.texts.get(number, "") for number in log.group[rows].tolist()]
    ended = (log.ended_ns[rows] + log.wall_offset_ns).tolist()
    return dict(zip(zip(groups, log.seq[rows].tolist(), strict=True), ended, strict=True))


def apart_ns(one: LogColumns, other: LogColumns) -> float | None:
    """How far two ranks' clocks may be apart, as their logs are read. None where too few collectives say it."""
    found = _differences(_ends(one), _ends(other))
    return None if found is None else abs(found[0]) + _CLEAR * found[1]


def _offset(ends: Mapping[_Key, int], others: Mapping[_Key, int]) -> int | None:
    """None where too few collectives are in both."""
    found = _differences(ends, others)
    if found is None:
        return None
    middle, spread = found
    return round(middle) if abs(middle) > _CLEAR * spread else 0


def _differences(ends: Mapping[_Key, int], others: Mapping[_Key, int]) -> tuple[float, float] | None:
    """How much later the same collectives ended by the other clock: the middle, and how far they scatter around it."""
    apart = [others[key] - ended for key, ended in ends.items() if key in others]
    if len(apart) < _LEAST:
        return None
    middle = median(apart)
    return middle, median(abs(one - middle) for one in apart)
