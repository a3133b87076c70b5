"""Whether a zstd file is whole, from the sizes that its blocks state: nothing is decompressed."""

from __future__ import annotations

import os
from pathlib import Path

from prismdbg.capsule import transfer

_MAGIC = 0xFD2FB528
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_ID_BYTES = (0, 1, 2, 4)
_SIZE_BYTES = (0, 2, 4, 8)
_RLE, _RESERVED = 1, 3  # types of blocks


def ends_early(path: Path) -> bool:
    """True where the file at `path` ends within a frame, as an interrupted copy does, and where it is no zstd file.
    Format: RFC 8878, 3.1."""
    with transfer.open_plain(path) as file:
        size_bytes, at = os.fstat(file.fileno()).st_size, 0
        while at < size_bytes:
            end = _end_of_frame(file.fileno(), at)
            if end is None or end > size_bytes:
                return True
            at = end
        return size_bytes == 0


def _end_of_frame(descriptor: int, at: int) -> int | None:
    """None where the file ends before the last block."""
    head = os.pread(descriptor, 8, at)
    magic = int.from_bytes(head[:4], "little")
    if magic in _SKIPPABLE:
        return at + 8 + int.from_bytes(head[4:], "little")
    if magic != _MAGIC or len(head) < 5:
        return None
    described = head[4]
    is_single = described >> 5 & 1
    content_size = _SIZE_BYTES[described >> 6] or is_single
    at += 5 + (1 - is_single) + _ID_BYTES[described & 3] + content_size
    is_last = False
    while not is_last:
        header = os.pread(descriptor, 3, at)
        block = int.from_bytes(header, "little")
        is_last, kind = bool(block & 1), block >> 1 & 3
        if len(header) < 3 or kind == _RESERVED:
            return None
        at += 3 + (1 if kind == _RLE else block >> 3)
    return at + (4 if described >> 2 & 1 else 0)
