"""Where the records of a log lie: in files, and in a joined file by segment, so that nobody reads all of it for some.

A joined file is read as the segments that it was made of: each part as words of its own, under the file's header.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.reader import DAMAGED, event_segments, segment_span
from prismdbg.capsule.transfer import open_plain
from prismdbg.errors import CapsuleError

Words = NDArray[np.uint64]
Numbered = tuple[int, Path]  # a file and the number of its first segment

MAX_SEGMENT_BYTES = 128 << 20  # a recorder's have a few MiB; a preface grows with the job's source lines and groups
SLOT_BYTES = 8  # records begin and are sized in slots of this many bytes
FIRST_SLOT = fmt.HEADER.size // SLOT_BYTES
_MOST_TABLE_BYTES = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """The segment `number`, in a file whose header has the number `of_file`: from the slot `begin` to before `end`
    (None: to the file's end). Slots of its words are counted as if it were a file of its own."""

    number: int
    path: Path
    of_file: int
    begin: int = FIRST_SLOT
    end: int | None = None

    @property
    def is_file(self) -> bool:
        return self.begin == FIRST_SLOT and self.end is None

    def size_bytes(self) -> int:
        end_bytes = self.path.stat().st_size if self.end is None else self.end * SLOT_BYTES
        return end_bytes - self.offset(FIRST_SLOT) + fmt.HEADER.size

    def offset(self, slot: int) -> int:
        """In the file, in bytes."""
        return (slot - FIRST_SLOT + self.begin) * SLOT_BYTES

    def words(self) -> Words:
        """The file's header and the records, as 64-bit words. Read, not mapped: a job may write or cut it meanwhile.
        `CapsuleError` where there are more than a segment can have: of a file with a hole, say."""
        with open_plain(self.path) as file:
            data = self._read(file)
        whole = len(data) // SLOT_BYTES if len(data) >= fmt.HEADER.size else 0
        return np.frombuffer(data, dtype="<u8", count=whole)

    def _read(self, file: BinaryIO) -> bytes:
        end_bytes = os.fstat(file.fileno()).st_size if self.end is None else self.end * SLOT_BYTES
        size_bytes = end_bytes - self.offset(FIRST_SLOT)
        if size_bytes + fmt.HEADER.size > MAX_SEGMENT_BYTES:
            raise CapsuleError(
                f"{self.path} has {size_bytes >> 20} MiB: no segment has more than {MAX_SEGMENT_BYTES >> 20} MiB",
                hint=DAMAGED,
            )
        if self.is_file:
            return file.read(end_bytes)
        header = file.read(fmt.HEADER.size)
        file.seek(self.offset(FIRST_SLOT))
        records = file.read(max(size_bytes, 0))
        if self.end is not None and len(records) < size_bytes:
            raise _truncated(self.path)
        return header + records

    def body(self, slot: int) -> bytes:
        """The bytes of one record after its header, and nothing else of the part."""
        with open_plain(self.path) as file:
            file.seek(self.offset(slot))
            head = file.read(SLOT_BYTES)
            size_bytes = int.from_bytes(head[:4], "little")
            if len(head) < SLOT_BYTES or not SLOT_BYTES <= size_bytes <= MAX_SEGMENT_BYTES:
                raise _truncated(self.path)
            return file.read(size_bytes - SLOT_BYTES)


def _truncated(path: Path) -> CapsuleError:
    return CapsuleError(f"{path} was truncated while it was read", hint="read another rank's log")


def whole_file(path: Path, number: int = 0) -> LogPart:
    """All of a file that is not joined, or of a summary."""
    return LogPart(number=number, path=path, of_file=number)


def log_parts(folder: Path) -> list[LogPart]:
    """Of a log, in order."""
    return all_parts(event_segments(folder))


def all_parts(files: Sequence[Numbered]) -> list[LogPart]:
    return [part for number, path in files for part in parts_of(number, path)]


def newest_first(files: Sequence[Numbered]) -> Iterator[LogPart]:
    """Opens no joined file before its parts are asked for."""
    for number, path in reversed(files):
        yield from reversed(parts_of(number, path))


def parts_of(number: int, path: Path) -> list[LogPart]:
    """Of one file: one where it is not joined, or its table is not to be used. `OSError` where it is gone meanwhile."""
    first, last = segment_span(path)
    table = _table(path, first, last) if first < last else []
    if not table:
        return [whole_file(path, number)]
    ends = [*(begin for _, begin in table[1:]), None]
    return [
        LogPart(number=of, path=path, of_file=number, begin=begin, end=end)
        for (of, begin), end in zip(table, ends, strict=True)
    ]


def table_of(parts: Sequence[tuple[int, int]]) -> bytes:
    """The record that says where parts begin: number and how many slots each has, one after the other."""
    size_bytes = fmt.RECORD.size + fmt.PART.size * len(parts)
    body, begin = b"", FIRST_SLOT + size_bytes // SLOT_BYTES
    for number, slots in parts:
        body += fmt.PART.pack(number, begin)
        begin += slots
    return fmt.RECORD.pack(size_bytes, fmt.Kind.PARTS, 0) + body


def _table(path: Path, first: int, last: int) -> list[tuple[int, int]]:
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
