"""Where the records of a segment begin, found by walking from many places at once. Gives only what is certain: whoever
asks goes on from there record by record."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

LANES = 512
LEAST_WORDS = 1 << 14  # below that, walking one by one is as quick
_ROUNDS = 8
_FEW_LANES = 32  # walked one after the other: numpy takes as long for one lane as for hundreds
_AHEAD = 96  # words in which a lane looks for its first record
_MOST_BYTES = (1 << 17) - 8
_MOST_KIND = (1 << 6) - 1  # a newer writer's kinds are walked over, too
_SIZE = np.uint64(0xFFFFFFFF)
_ELSEWHERE = ~np.uint64(_MOST_KIND << 32 | _MOST_BYTES)  # where the head of a record has zeros


def walk(words: Words, first: int) -> tuple[Ints, int]:
    """The slots of records from `first` on, in order, and the slot to go on from."""
    none = np.zeros(0, dtype=np.int64)
    if len(words) - first < LEAST_WORDS:
        return none, first
    starts = _starts(words, first)
    limits = np.append(starts[1:], len(words))
    slots, ends = _in_step(words, starts, limits)
    by_lane = list(slots)
    for _ in range(_ROUNDS):
        # What looked like a record was inside of one: such a lane walks again, from where the one before it came to.
        again = 1 + np.flatnonzero((ends[:-1] != starts[1:]) & (ends[:-1] >= limits[:-1]))
        if not len(again):
            break
        starts[again] = ends[again - 1]
        if len(again) > _FEW_LANES:
            slots, ends[again] = _in_step(words, starts[again], limits[again])
            for lane, walked in zip(again.tolist(), slots, strict=True):
                by_lane[lane] = walked
        else:
            for lane in again.tolist():
                by_lane[lane], ends[lane] = _one_lane(words, int(starts[lane]), int(limits[lane]))
    certain = 1 + int(np.argmin(np.append(ends[:-1] == starts[1:], False)))  # a lane that is met by the one before
    found = np.concatenate(by_lane[:certain])
    return found[found >= 0], int(ends[certain - 1])


def _starts(words: Words, first: int) -> Ints:
    """What looks like a record, and like two more after it, in each part of the segment; the first is one."""
    begins = np.linspace(first, len(words) - 1, LANES + 1).astype(np.int64)[1:-1]
    slots = (begins[:, None] + np.arange(_AHEAD)).ravel()
    fits = np.flatnonzero(slots < len(words))  # which of `slots`
    at = slots[fits]
    for _ in range(3):
        head = words[at]
        right = _looks_right(head)
        after = at[right] + (head[right] & _SIZE).astype(np.int64) // 8
        inside = after < len(words)
        fits, at = fits[right][inside], after[inside]
    _, earliest = np.unique(fits // _AHEAD, return_index=True)
    return np.concatenate([[first], slots[fits[earliest]]]).astype(np.int64)


def _looks_right(head: Words) -> NDArray[np.bool_]:
    """A size that is a multiple of 8 and not large, a kind, zeros. Few operations: they are what a walk costs."""
    right: NDArray[np.bool_] = (head & _ELSEWHERE == 0) & (head & _SIZE != 0) & (head > _SIZE)
    return right


def _in_step(words: Words, starts: Ints, limits: Ints) -> tuple[Ints, Ints]:
    """All lanes a record at a time: by lane its slots (-1 where it has ended), and where each ended."""
    at = starts.copy()
    steps: list[Ints] = []
    going = np.flatnonzero(at < limits)
    while len(going):
        head = words[at[going]]
        after = at[going] + (head & _SIZE).astype(np.int64) // 8
        good = _looks_right(head) & (after <= len(words))  # one that is cut off is none
        going, after = going[good], after[good]
        slots = np.full(len(starts), -1, dtype=np.int64)
        slots[going] = at[going]
        steps.append(slots)
        at[going] = after
        going = going[at[going] < limits[going]]
    return np.stack(steps, axis=1) if steps else np.zeros((len(starts), 0), dtype=np.int64), at


def _one_lane(words: Words, start: int, limit: int) -> tuple[Ints, int]:
    """As `_in_step`, of a single one."""
    heads, elsewhere, end = words.data.cast("B").cast("Q"), int(_ELSEWHERE), len(words)
    slots, at = [], start
    while at < limit:
        head = heads[at]
        size_bytes = head & 0xFFFFFFFF
        after = at + size_bytes // 8
        if head & elsewhere or not size_bytes or head >> 32 == 0 or after > end:
            break
        slots.append(at)
        at = after
    return np.array(slots, dtype=np.int64), at
