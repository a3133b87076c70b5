"""The table at the beginning of a joined file of a log: where the records of each of its segments begin."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.transfer import open_plain

SLOT_BYTES = 8  # records begin and are sized in slots of this many bytes
FIRST_SLOT = fmt.HEADER.size // SLOT_BYTES
_MOST_TABLE_BYTES = 1 << 17


def table_of(parts: Sequence[tuple[int, int]]) -> bytes:
    """The record that says where parts begin: number and how many slots each has, one after the other."""
    size_bytes = fmt.RECORD.size + fmt.PART.size * len(parts)
    body, begin = b"", FIRST_SLOT + size_bytes // SLOT_BYTES
    for number, slots in parts:
        body += fmt.PART.pack(number, begin)
        begin += slots
    return fmt.RECORD.pack(size_bytes, fmt.Kind.PARTS, 0) + body


def part_table(path: Path, first: int, last: int) -> list[tuple[int, int]]:
    """Number and first slot of each part that begins before the file's end, which may be cut; empty where there is no
    table, or one that cannot be true. Whether parts begin and end where records do shows when they are read."""
    with open_plain(path) as file:
        file.seek(fmt.HEADER.size)
        head = file.read(fmt.RECORD.size)
        size_bytes, kind, _ = fmt.RECORD.unpack(head.ljust(fmt.RECORD.size, b"\0"))
        if kind != fmt.Kind.PARTS or not fmt.RECORD.size < size_bytes <= _MOST_TABLE_BYTES:
            return []
        body = file.read(size_bytes - fmt.RECORD.size)
        slots = os.fstat(file.fileno()).st_size // SLOT_BYTES
    if len(body) % fmt.PART.size or len(body) < size_bytes - fmt.RECORD.size:
        return []
    table = list(fmt.PART.iter_unpack(body))
    numbers, begins = zip(*table, strict=True)
    begin = FIRST_SLOT + size_bytes // SLOT_BYTES
    is_true = numbers[0] == first and numbers[-1] <= last and begins[0] == begin
    left = max(bisect_left(begins, slots), 1)
    return table[:left] if is_true and _rises(numbers) and _rises(begins) else []


def _rises(numbers: Sequence[int]) -> bool:
    return all(one < other for one, other in pairwise(numbers))
