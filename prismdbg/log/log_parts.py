"""Where the records of a log lie: in files, and in a joined file by segment, so that nobody reads all of it for some.

A joined file is read as the segments that it was made of: each part as words of its own, under the file's header.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.part_table import FIRST_SLOT, SLOT_BYTES, part_table
from prismdbg.capsule.log.reader import DAMAGED, event_segments, segment_span
from prismdbg.capsule.transfer import open_plain
from prismdbg.errors import CapsuleError

Words = NDArray[np.uint64]
Numbered = tuple[int, Path]  # a file and the number of its first segment

MAX_SEGMENT_BYTES = 128 << 20  # a recorder's have a few MiB; a preface grows with the job's source lines and groups


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
    table = part_table(path, first, last) if first < last else []
    if not table:
        return [whole_file(path, number)]
    ends = [*(begin for _, begin in table[1:]), None]
    return [
        LogPart(number=of, path=path, of_file=number, begin=begin, end=end)
        for (of, begin), end in zip(table, ends, strict=True)
    ]
