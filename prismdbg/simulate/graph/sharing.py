"""Times of computations from one telling of an iteration, what they are made of from another that says more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from prismdbg.simulate.graph.entries import Entries, Kind
from prismdbg.simulate.graph.mesh import Ints


def shared_out(times: Entries, parts: Entries) -> Entries:
    """`parts` in which all that is computed between two calls or waits takes as long as in `times`, in the proportions
    of `parts`. Where the two do not wait and call alike, `parts` as it is.
    """
    if not _are_alike(times, parts):
        return parts
    total_ns = dict(zip(*_totals(times), strict=True))
    durations = parts.duration_ns.copy()
    groups = _groups(parts)
    for group in np.unique(groups[groups >= 0]):
        chosen = np.flatnonzero(groups == group)
        durations[chosen] = in_proportion(parts.duration_ns[chosen], total_ns.get(int(group), 0))
    return replace(parts, duration_ns=durations)


def _are_alike(one: Entries, other: Entries) -> bool:
    return one.streams == other.streams and _borders(one) == _borders(other)


def _borders(entries: Entries) -> list[tuple[int, ...]]:
    """Calls and waits, a wait by the number of its call."""
    chosen = np.flatnonzero(entries.communicates | (entries.kind == Kind.WAIT))
    number = np.full(len(entries), -1, dtype=np.int64)
    number[chosen] = np.arange(len(chosen))
    waited_for = np.where(entries.target[chosen] >= 0, number[entries.target[chosen]], -1)
    columns = (entries.kind[chosen], entries.stream[chosen], entries.issuer[chosen], waited_for)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _groups(entries: Entries) -> Ints:
    """Of each computation a number that is the same for those of one stream between two borders; -1 of all else."""
    computes: NDArray[np.bool_] = entries.kind == Kind.COMPUTE
    borders = entries.communicates | (entries.kind == Kind.WAIT)
    own = np.where(entries.communicates, entries.issuer, entries.stream).astype(np.int64)
    groups = np.full(len(entries), -1, dtype=np.int64)
    for stream in range(len(entries.streams)):
        passed = np.cumsum(borders & (own == stream))
        here = computes & (entries.stream == stream)
        groups[here] = passed[here] * len(entries.streams) + stream
    return groups


def _totals(entries: Entries) -> tuple[list[int], list[int]]:
    groups = _groups(entries)
    numbers, which = np.unique(groups[groups >= 0], return_inverse=True)
    sums = np.zeros(len(numbers), dtype=np.int64)
    np.add.at(sums, which, entries.duration_ns[groups >= 0])
    return numbers.tolist(), sums.tolist()


def in_proportion(durations_ns: Ints, total_ns: int) -> Ints:
    """The same to the nanosecond in sum."""
    whole = int(durations_ns.sum())
    if not whole:
        return durations_ns
    ends = np.cumsum(durations_ns).astype(np.float64) * (total_ns / whole)
    rounded = np.rint(ends).astype(np.int64)
    rounded[-1] = total_ns
    return np.diff(rounded, prepend=0)
