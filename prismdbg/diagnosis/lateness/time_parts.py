"""The time of a job in equal parts: how much of each part intervals fill, and which of them is the longest there. A log
of any length becomes as many numbers as there are parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prismdbg.log.segment import Ints

Floats = NDArray[np.float64]
PARTS = 240
_LEVELS = PARTS.bit_length()


def shares(begun: NDArray[np.generic], ended: NDArray[np.generic], edges: Floats) -> Floats:
    """Of each part between two edges, the share that these intervals fill."""
    in_order = [
        np.sort(times, kind="stable") for times in (begun, ended)
    ]  # they nearly are, which `stable` makes use of
    spent: Floats = np.diff(_since(in_order[0], edges) - _since(in_order[1], edges))
    parts = np.diff(edges)
    return np.clip(np.divide(spent, parts, out=np.zeros_like(spent), where=parts > 0), 0.0, 1.0)


def _since(times: NDArray[np.generic], edges: Floats) -> Floats:
    """At each edge the sum of what has passed since all of the sorted times before it."""
    before = np.searchsorted(times, edges)
    sums = np.concatenate([[0.0], np.cumsum(times - edges[0], dtype=np.float64)])
    passed: Floats = before * (edges - edges[0]) - sums[before]
    return passed


def part_at(times: NDArray[np.generic], edges: Floats) -> Ints:
    """By time the part in which it lies; the first or the last one where it lies outside."""
    parts: Floats = (times - edges[0]) * (PARTS / max(float(edges[-1] - edges[0]), 1.0))
    found: Ints = np.clip(parts, 0, PARTS - 1).astype(np.int64)
    return found


def longest_in(begun: Ints, ended: Ints, edges: Floats) -> Ints:
    """Shape (PARTS,): the position of the longest interval that reaches into a part, -1 where none does.

    An interval counts as two that are a power of two of parts long, and these are halved level by level: one that
    lasts for the whole job costs no more than a short one.
    """
    if not len(begun):
        return np.full(PARTS, -1, dtype=np.int64)
    first, last = part_at(begun, edges), part_at(ended, edges)
    order = _longest_of_each(first * PARTS + last, ended - begun)
    first, last = first[order], last[order]
    level = np.frexp(last - first + 1)[1] - 1
    here = np.maximum(_longest_from(level, first), _longest_from(level, last + 1 - (1 << level)))
    for high in range(_LEVELS - 1, 0, -1):
        half = 1 << (high - 1)
        here[high - 1] = np.maximum(here[high - 1], here[high])
        here[high - 1, half:] = np.maximum(here[high - 1, half:], here[high, :-half])
    return np.where(here[0] >= 0, order[here[0]], -1)


def _longest_of_each(key: Ints, lasted: Ints) -> Ints:
    """Positions of those that no other one of the same key is longer than, the longest last: of a long log a few, and
    only these are sorted."""
    longest = np.full(PARTS * PARTS, -1, dtype=np.int64)
    np.maximum.at(longest, key, lasted)
    places = np.flatnonzero(lasted == longest[key])
    return places[np.argsort(lasted[places], kind="stable")]


def _longest_from(level: NDArray[np.integer], first: Ints) -> Ints:
    """By level and first part the last of the intervals that are given, -1 where none is there."""
    found = np.full((_LEVELS, PARTS), -1, dtype=np.int64)
    found[level, first] = np.arange(len(first))  # of equal places the last one that is told stays
    return found
