"""One segment of a log as columns of numbers: found record by record, decoded all at once. No objects a record.

The bytes are `capsule/log/format.py`; what a single record says in full is decoded by `capsule/log/records.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule.limits import MAX_TENSORS
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.part_table import FIRST_SLOT, SLOT_BYTES
from prismdbg.capsule.log.reader import DAMAGED
from prismdbg.errors import CapsuleError
from prismdbg.log.log_parts import LogPart, Words
from prismdbg.log.record_walk import walk
from prismdbg.model import dtypes
from prismdbg.model.fingerprint_arithmetic import as_signed
from prismdbg.model.sketch import SIZE_BYTES as SKETCH_BYTES

Ints = NDArray[np.int64]

_HEAD_SLOTS = fmt.RECORD.size // SLOT_BYTES
_TENSORS = (fmt.RECORD.size + fmt.ISSUE.size) // SLOT_BYTES
_ITEM_BYTES = np.array([dtypes.ITEM_BYTES.get(dtypes.name_of(n), 0) for n in range(256)], dtype=np.int64)
_KINDS = {"Q": (8, "<u8"), "q": (8, "<i8"), "I": (4, "<u4"), "i": (4, "<i4"), "H": (2, "<u2"), "B": (1, "<u1")}
_MAX_DIMENSIONS = 64
_HAS_SKETCH = int(fmt.IssueFlag.HAS_SKETCH)
_FACTOR = np.uint64(0x100000001B3)
_64_BITS = (1 << 64) - 1
_CHUNK = 4096  # words of one list that are taken into its key at once
_POWERS = np.multiply.accumulate(np.append(np.uint64(1), np.full(_CHUNK, _FACTOR)))[::-1]
_FEW_ROWS = 64  # numpy takes as long for a step of a few rows as Python does; one of them may have a million steps
_LAYOUTS = {int(fmt.Kind.ISSUE): fmt.ISSUE, int(fmt.Kind.COMPLETE): fmt.COMPLETE, int(fmt.Kind.WAIT): fmt.WAIT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the records of each kind lie, in slots from the segment's start. `closed`: a next segment follows."""

    issues: Ints
    completions: Ints
    waits: Ints
    others: list[tuple[int, int]]  # kind, slot
    closed: bool
    damage: CapsuleError | None


def find_records(words: Words, part: LogPart) -> Places:
    """As far as can be seen at once, then from record to record."""
    found, slot = walk(words, FIRST_SLOT)
    slots = words.data.cast("B").cast("Q")
    end = len(slots)
    stepped: list[int] = []
    damage, closed = None, False
    add = stepped.append
    while slot < end:
        head = slots[slot]
        size_bytes = head & 0xFFFFFFFF
        if not size_bytes:
            break
        following = slot + (size_bytes >> 3)
        if size_bytes & 7 or following > end:
            damage = CapsuleError(
                f"{part.path} is damaged at offset {part.offset(slot)}, in a record of {size_bytes} bytes", hint=DAMAGED
            )
            break
        if (head >> 32) & 0xFFFF == 0xFFFF:  # Kind.END; an enum member here would double the time
            closed = True
            break
        add(slot)
        slot = following
    else:
        closed = True
    is_whole = part.is_file or (slot == end if part.end is not None else slot < end and closed)
    if not is_whole and damage is None:  # the table, or what it speaks of, is not as it was
        damage = CapsuleError(
            f"{part.path} is damaged at offset {part.offset(slot)}: no record begins here", hint=DAMAGED
        )
    found = np.append(found, np.array(stepped, dtype=np.int64))
    kinds = (words[found] >> np.uint64(32)) & np.uint64(0xFFFF)
    by_kind = {kind: found[kinds == kind] for kind in _LAYOUTS}
    cut = min(_too_small(words, by_kind[kind], layout) for kind, layout in _LAYOUTS.items())
    cut = min(cut, _too_small(words, with_sent(words, by_kind[fmt.Kind.COMPLETE]), fmt.COMPLETE_AND_SENT))
    if cut < end:
        where = f"{part.path} is damaged at offset {part.offset(cut)}"
        damage = CapsuleError(f"{where}: the record is too small for its kind")
    rest = ~np.isin(kinds, list(_LAYOUTS)) & (found < cut)
    return Places(
        issues=by_kind[fmt.Kind.ISSUE][by_kind[fmt.Kind.ISSUE] < cut],
        completions=by_kind[fmt.Kind.COMPLETE][by_kind[fmt.Kind.COMPLETE] < cut],
        waits=by_kind[fmt.Kind.WAIT][by_kind[fmt.Kind.WAIT] < cut],
        others=list(zip(kinds[rest].tolist(), found[rest].tolist(), strict=True)),
        closed=closed and damage is None,
        damage=damage,
    )


def _too_small(words: Words, slots: Ints, layout: struct.Struct) -> int:
    """The first of these records that has no room for what its kind holds; the segment's end where all have."""
    sizes = words[slots] & np.uint64(0xFFFFFFFF)
    small = slots[sizes < fmt.RECORD.size + layout.size]
    return int(small[0]) if len(small) else len(words)


def with_sent(words: Words, completions: Ints) -> Ints:
    """Those that have the fingerprint of what was sent."""
    ends = completions + (fmt.RECORD.size + fmt.COMPLETE.size) // SLOT_BYTES
    whole = completions[ends <= len(words)]
    return whole[field(words, whole, fmt.COMPLETE, 7) & int(fmt.CompleteFlag.HAS_FINGERPRINT) > 0]


def only_records(words: Words, slots: Ints) -> tuple[Words, Ints]:
    """A copy of these records alone, in this order, and where each is in it."""
    sizes = (words[slots] & np.uint64(0xFFFFFFFF)).astype(np.int64) // SLOT_BYTES
    data = b"".join(record(words, slot) for slot in slots.tolist())
    return np.frombuffer(data, dtype="<u8"), np.cumsum(sizes) - sizes


def record(words: Words, slot: int) -> bytes:
    """The bytes of one record."""
    size_bytes = int(words[slot]) & 0xFFFFFFFF
    return words[slot : slot + size_bytes // SLOT_BYTES].tobytes()


def body(words: Words, slot: int) -> bytes:
    """The bytes of one record after its header."""
    size_bytes = int(words[slot]) & 0xFFFFFFFF
    return words[slot + _HEAD_SLOTS : slot + size_bytes // SLOT_BYTES].tobytes()


def field(words: Words, slots: Ints, layout: struct.Struct, number: int) -> Ints:
    """Field `number` of the bodies of the records at `slots`, as `layout` of the log's format has it."""
    at, width, kind = _place(layout, number)
    return words.view(kind)[slots * (SLOT_BYTES // width) + at // width].astype(np.int64)


def fields(words: Words, slots: Ints, layout: struct.Struct, numbers: Iterable[int]) -> list[Ints]:
    """As `field`, of several: the records are copied once, one beside the other, as single words of each take longer to
    collect."""
    records = _lists(words, slots, (fmt.RECORD.size + layout.size) // SLOT_BYTES)
    places = (_place(layout, number) for number in numbers)
    return [records.view(kind)[:, at // width].astype(np.int64) for at, width, kind in places]


def _place(layout: struct.Struct, number: int) -> tuple[int, int, str]:
    """Where a field lies in a record: bytes from its start, its width in bytes, and its type."""
    codes = layout.format.lstrip("<")
    return fmt.RECORD.size + struct.calcsize("<" + codes[:number]), *_KINDS[codes[number]]


def _lists(words: Words, slots: Ints, length: int) -> Words:
    """So many words from each of these slots on; shape (slots, length)."""
    return np.lib.stride_tricks.sliding_window_view(words, length)[slots]


def tensor_bytes(words: Words, slots: Ints, inputs: Ints, outputs: Ints) -> Ints:
    """What each collective sends, or receives where it sends nothing, in bytes."""
    ends = slots + (words[slots] & np.uint64(0xFFFFFFFF)).astype(np.int64) // SLOT_BYTES
    entries = np.where(inputs > 0, inputs, outputs)
    total = np.zeros(len(slots), dtype=np.int64)
    rows = np.flatnonzero(entries)
    cursor, left = slots[rows] + _TENSORS, entries[rows]
    while len(rows) > _FEW_ROWS:
        inside = cursor < ends[rows]
        rows, cursor, left = rows[inside], cursor[inside], left[inside]
        if not len(rows):
            break
        head = words[cursor].astype(np.int64)
        dims = np.minimum((head >> 8) & 0xFF, _MAX_DIMENSIONS)
        repeat = np.minimum((head >> 32) & 0xFFFFFFFF, MAX_TENSORS)
        elements = np.ones(len(rows), dtype=np.int64)
        for d in range(int(dims.max(initial=0))):
            at = np.minimum(cursor + 1 + d, len(words) - 1)
            elements *= np.where(dims > d, words[at].astype(np.int64), 1)
        total[rows] += elements * _ITEM_BYTES[head & 0xFF] * repeat
        more = left > 1
        rows, cursor, left = rows[more], (cursor + 1 + dims)[more], left[more] - 1
    for row, first, count in zip(rows.tolist(), cursor.tolist(), left.tolist(), strict=True):
        total[row] = as_signed((int(total[row]) + _rest_bytes(words, first, int(ends[row]), count)) & _64_BITS)
    return total


def _rest_bytes(words: Words, slot: int, end: int, entries: int) -> int:
    """What the rest of one collective's list has, tensor by tensor, in 64 bits as the columns."""
    slots, last = words.data.cast("B").cast("Q"), len(words) - 1
    item_bytes = _ITEM_BYTES.tolist()
    total = 0
    while entries > 0 and slot < end:
        head = slots[slot]
        dims = min((head >> 8) & 0xFF, _MAX_DIMENSIONS)
        size_bytes = item_bytes[head & 0xFF] * min(head >> 32, MAX_TENSORS)
        for at in range(slot + 1, slot + 1 + dims):
            size_bytes = size_bytes * slots[min(at, last)] & _64_BITS
        total += size_bytes
        slot, entries = slot + 1 + dims, entries - 1
    return total


def first_types(words: Words, slots: Ints, inputs: Ints, outputs: Ints) -> Ints:
    """The number of the element type of each collective's first tensor; -1 where it has none."""
    at = np.minimum(slots + _TENSORS, len(words) - 1)
    types = (words[at] & np.uint64(0xFF)).astype(np.int64)
    return np.where(inputs + outputs > 0, types, -1)


def tensors_key(words: Words, slots: Ints) -> Ints:
    """A number for the lists of tensors of each collective: equal lists have equal ones, others hardly ever. Devices do
    not count."""
    ends = slots + (words[slots] & np.uint64(0xFFFFFFFF)).astype(np.int64) // SLOT_BYTES
    ends -= np.where(field(words, slots, fmt.ISSUE, 15) & _HAS_SKETCH, SKETCH_BYTES // SLOT_BYTES, 0)
    at = slots + _TENSORS
    key = words[at - 1]  # how many in and out
    lengths = np.maximum(ends - at, 0)
    order = np.argsort(lengths, kind="stable")
    distinct, first = np.unique(lengths[order], return_index=True)
    for length, rows in zip(distinct.tolist(), np.split(order, first[1:]), strict=False):
        for begin in range(0, length, _CHUNK):
            chunk = _lists(words, at[rows] + begin, min(length - begin, _CHUNK))
            width = chunk.shape[1]
            key[rows] = key[rows] * _POWERS[-width - 1] + chunk @ _POWERS[-width:]
    return key.view(np.int64)
