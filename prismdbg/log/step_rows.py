"""What the collectives of a step did, as one row of numbers: made of a segment's records, joined, and read again.

Records of kind STEPS hold the rows of a segment. The fields are explained in `capsule/log/format.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule.log import format as fmt
from prismdbg.log import segment as seg
from prismdbg.log.log_parts import Words
from prismdbg.log.segment import Ints

MOST_ROWS = 1 << 15  # of 72 bytes: beyond, old rows are of several steps
MOST_OF_MANY = 1 << 11  # of each of many ranks, so that the rows of all fit in memory
_STEP_BITS = 32
_IN_A_RECORD = 512
Rows = NDArray[np.void]
ROW = np.dtype(
    [
        *[("first_step", "<u4"), ("last_step", "<u4"), ("begun_ns", "<i8"), ("ended_ns", "<i8")],
        *[("collectives", "<u8"), ("size_bytes", "<u8"), ("waited_ns", "<u8"), ("first_stack", "<u4")],
        *[("last_stack", "<u4"), ("nonfinite", "<u4"), ("failed", "<u4"), ("payload_nth", "<u4")],
        ("payload_segment", "<i4"),
    ]
)
NO_ROWS: Rows = np.zeros(0, dtype=ROW)
_ENDED_NONFINITE = int(fmt.CompleteFlag.RECEIVED_NONFINITE | fmt.CompleteFlag.SENT_NONFINITE)
_STEPS = int(fmt.Kind.STEPS)  # an enumeration's member compares slowly
_SUMS = ("collectives", "size_bytes", "waited_ns", "nonfinite", "failed")
_NONE = np.iinfo(np.int64).max
assert ROW.itemsize == fmt.STEPS.size


def rows_of(words: Words, places: seg.Places) -> Rows:
    """Of a segment: one for each step in which it issues something, in their order. A collective counts as waited for
    if it also completes in the segment."""
    issues = places.issues
    if not len(issues):
        return NO_ROWS
    ended, ending_flags, failed, payload = _endings(words, places.completions, seg.field(words, issues, fmt.ISSUE, 0))
    sent = seg.field(words, issues, fmt.ISSUE, 15) & int(fmt.IssueFlag.SENT_NONFINITE)
    return rows_of_calls(
        step=seg.field(words, issues, fmt.ISSUE, 5),
        begun=seg.field(words, issues, fmt.ISSUE, 1),
        ended=ended,
        size_bytes=seg.tensor_bytes(
            words, issues, seg.field(words, issues, fmt.ISSUE, 17), seg.field(words, issues, fmt.ISSUE, 18)
        ),
        nonfinite=(sent | (ending_flags & _ENDED_NONFINITE)) > 0,
        failed=failed,
        stack=seg.field(words, issues, fmt.ISSUE, 9),
        payload=payload,
        nth=seg.field(words, issues, fmt.ISSUE, 6),
    )


def rows_of_calls(
    *,
    step: Ints,
    begun: Ints,
    ended: Ints,
    size_bytes: Ints,
    nonfinite: NDArray[np.bool_],
    failed: NDArray[np.bool_],
    stack: Ints,
    payload: Ints,
    nth: Ints,
) -> Rows:
    """Of collectives that were issued one after another. ended: -1 where one did not complete; payload: its segment, -1
    where there is none."""
    if not len(step):
        return NO_ROWS
    order = np.argsort(step, kind="stable")
    starts = np.flatnonzero(np.diff(step[order], prepend=-1))
    stack = stack[order]
    columns = {
        "collectives": np.ones(len(step), dtype=np.int64),
        "size_bytes": size_bytes,
        "waited_ns": np.where(ended >= 0, ended - begun, 0),
        "nonfinite": nonfinite.astype(np.int64),
        "failed": failed.astype(np.int64),
    }
    rows = np.zeros(len(starts), dtype=ROW)
    rows["first_step"] = rows["last_step"] = step[order][starts]
    rows["begun_ns"] = np.minimum.reduceat(begun[order], starts)
    rows["ended_ns"] = np.maximum.reduceat(ended[order], starts)
    for name, column in columns.items():
        rows[name] = np.maximum(np.add.reduceat(column[order], starts), 0)
    rows["first_stack"], rows["last_stack"] = stack[starts], stack[np.append(starts[1:], len(stack)) - 1]
    place = np.where(payload[order] >= 0, np.arange(len(order)), _NONE)
    first = np.minimum.reduceat(place, starts)
    has = first != _NONE
    at = np.where(has, first, 0)
    rows["payload_nth"] = np.where(has, nth[order][at], 0)
    rows["payload_segment"] = np.where(has, payload[order][at], -1)
    return rows


def _endings(words: Words, completions: Ints, ids: Ints) -> tuple[Ints, Ints, NDArray[np.bool_], Ints]:
    """By issue when it ended (-1: not here), its flags, whether it failed, and the payload segment (-1: none)."""
    ended, flags = np.full(len(ids), -1, dtype=np.int64), np.zeros(len(ids), dtype=np.int64)
    failed, payload = np.zeros(len(ids), dtype=np.bool_), np.full(len(ids), -1, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    done = seg.field(words, completions, fmt.COMPLETE, 0)
    at = np.minimum(np.searchsorted(ids[order], done), len(ids) - 1)
    known = ids[order][at] == done
    rows, slots = order[at[known]], completions[known]
    ended[rows] = seg.field(words, slots, fmt.COMPLETE, 1)
    flags[rows] = seg.field(words, slots, fmt.COMPLETE, 7)
    failed[rows] = seg.field(words, slots, fmt.COMPLETE, 6) == int(fmt.Status.FAILED)
    payload[rows] = seg.field(words, slots, fmt.COMPLETE, 4)
    payload[(flags & int(fmt.CompleteFlag.PAYLOAD)) == 0] = -1
    return ended, flags, failed, payload


def shorter(rows: Rows) -> Rows:
    """Each two rows as one."""
    return _merged(rows, np.arange(0, len(rows), 2))


def _merged(rows: Rows, starts: Ints) -> Rows:
    """From each of these places to before the next as one."""
    if not len(rows):
        return rows
    ends = np.append(starts[1:], len(rows)) - 1
    found = rows[starts].copy()
    found["last_stack"] = rows["last_stack"][ends]
    for names, of in (
        (("first_step", "begun_ns"), np.minimum),
        (("last_step", "ended_ns"), np.maximum),
        (_SUMS, np.add),
    ):
        for name in names:
            found[name] = of.reduceat(rows[name], starts)
    place = np.where(rows["payload_segment"] >= 0, np.arange(len(rows)), ends[-1])
    first = np.minimum(np.minimum.reduceat(place, starts), ends)
    for name in ("payload_nth", "payload_segment"):
        found[name] = rows[name][first]
    return found


def of_many(rows: Rows, most: int = MOST_OF_MANY) -> Rows:
    """At most so many, of one of many ranks. Older ones are of blocks of steps, mostly the same ones for each rank, so
    that ranks can be compared. A row with NaN or Inf and one without are not merged, as long as that is possible."""
    if len(rows) <= most:
        return rows
    is_bad = rows["nonfinite"] > 0
    changes = np.flatnonzero(is_bad[1:] != is_bad[:-1]) + 1
    first, last = int(rows["first_step"].min()), int(rows["last_step"].max())
    unit = max(most // 8, 1)  # of eight: two of blocks, four or five of whole steps, the rest for what goes beyond
    whole_from = (last - 4 * unit) // unit * unit
    least_bits = ((last - first) // (2 * unit)).bit_length()
    for whole, apart, bits in ((whole_from, changes, least_bits), (last + 1, changes[:0], 1)):
        for each in range(bits, _STEP_BITS + 1):
            starts = _block_starts(rows["first_step"].astype(np.int64), each, whole, apart)
            if len(starts) <= most:
                return _merged(rows, starts)
    return _merged(rows, np.zeros(1, dtype=np.int64))


def _block_starts(steps: Ints, bits: int, whole_from: int, apart: Ints) -> Ints:
    """Where blocks of so many bits of steps begin, each step from `whole_from` on, and what is `apart`."""
    is_start: NDArray[np.bool_] = (np.diff(steps >> bits, prepend=-1) != 0) | (steps >= whole_from)
    is_start[apart] = True
    return np.flatnonzero(is_start)


def bounded(sections: Sequence[Rows], most: int = MOST_ROWS) -> list[Rows]:
    """By segment, the oldest first: made shorter from the oldest on until there are at most so many rows, or each
    segment has one."""
    found = list(sections)
    total = sum(map(len, found))
    while total > most and any(len(rows) > 1 for rows in found):
        for number, rows in enumerate(found):
            if total <= most:
                break
            found[number] = shorter(rows)
            total -= len(rows) - len(found[number])
    return found


def by_step(rows: Rows) -> Rows:
    """A step that goes over the end of a segment has a row in each: here it has one. Rows of several steps stay."""
    rows = rows[np.lexsort((rows["last_step"], rows["first_step"]))]
    same = (rows["first_step"][1:] == rows["first_step"][:-1]) & (rows["last_step"][1:] == rows["last_step"][:-1])
    return _merged(rows, np.flatnonzero(np.append(True, ~same)))


def at(words: Words, others: Iterable[tuple[int, int]]) -> Rows:
    """Of the records of kind STEPS among these; of a damaged log one may have any length."""
    bodies = [seg.body(words, slot) for kind, slot in others if kind == _STEPS]
    return np.frombuffer(b"".join(body for body in bodies if len(body) % ROW.itemsize == 0), dtype=ROW)


def records_of(rows: Rows) -> Iterator[bytes]:
    for start in range(0, len(rows), _IN_A_RECORD):
        body = rows[start : start + _IN_A_RECORD].tobytes()
        yield fmt.RECORD.pack(fmt.RECORD.size + len(body), _STEPS, 0) + body
