"""Joins segments of a log that has ended into a few long files: on a file server, files cost more than bytes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.part_table import FIRST_SLOT, SLOT_BYTES, table_of
from prismdbg.capsule.log.reader import event_segments
from prismdbg.capsule.transfer import open_plain
from prismdbg.log.log_parts import LogPart, Numbered
from prismdbg.log.summary import put

JOINED_BYTES = 256 << 20  # as much as a log has by default: one file. A reader takes the parts that it needs
APART = 1  # the newest, which has no end
_CHUNK_BYTES = 64 << 10
_END = fmt.RECORD.pack(fmt.RECORD.size, fmt.Kind.END, 0)
_END_WORD = np.frombuffer(_END, dtype="<u8")[0]


def join(folder: Path, most_bytes: int = JOINED_BYTES) -> None:
    """All but the oldest segment, which may be a preface, and the newest. Nobody may write to the log any more.

    A reader finds all of it at any time: a joined file stands for its parts while they are still there
    (`event_segments`). Where there is no room for such a file beside its parts, files are shorter.
    """
    while groups := _groups(event_segments(folder)[1:-APART], most_bytes):
        try:
            for group in groups:
                put(folder / fmt.joined_segment(group[0].number, group[-1].number), _joined(group))
                for part in group:
                    part.path.unlink()
            return
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            most_bytes //= 2


def alone(part: LogPart) -> bytes:
    """A file of its own for a part of a joined one."""
    words = part.words()
    end = b"" if part.end is None else _END
    records = words[FIRST_SLOT:].tobytes() + end
    return _header(words[:FIRST_SLOT].tobytes(), part.number, len(records)) + records


def _groups(segments: Sequence[Numbered], most_bytes: int) -> list[list[LogPart]]:
    """Neighbours that fit into one file."""
    groups: list[list[LogPart]] = []
    left = 0
    for number, path in segments:
        size_bytes = path.stat().st_size
        end = _end(path) if path.name == fmt.event_segment(number) else None
        if end is None:  # joined before; or cut: it stays as it is, and whoever reads it says so
            left = 0
            continue
        if size_bytes > left:
            groups.append([])
            left = most_bytes
        groups[-1].append(LogPart(number=number, path=path, of_file=number, end=end))
        left -= size_bytes
    return [group for group in groups if len(group) > 1]


def _joined(parts: Sequence[LogPart]) -> Iterator[bytes]:
    """The records of all under the first one's header; one segment after the other is read."""
    slots = [(part.number, (part.size_bytes() - fmt.HEADER.size) // SLOT_BYTES) for part in parts]
    table = table_of(slots)
    with parts[0].path.open("rb") as file:
        header = file.read(fmt.HEADER.size)
    yield (
        _header(header, parts[0].number, len(table) + sum(count for _, count in slots) * SLOT_BYTES + len(_END)) + table
    )
    for part in parts:
        yield part.words()[FIRST_SLOT:].tobytes()
    yield _END


def _header(of_one: bytes, number: int, records_bytes: int) -> bytes:
    magic, version, _, rank, pid, wall_ns, monotonic_ns, _ = fmt.HEADER.unpack(of_one)
    size_bytes = fmt.HEADER.size + records_bytes
    return fmt.HEADER.pack(magic, version, number, rank, pid, wall_ns, monotonic_ns, size_bytes)


def _end(path: Path) -> int | None:
    """The slot of END; None where there is none. Behind it there are only zeros, so no record is walked over."""
    with open_plain(path) as file:
        end = os.fstat(file.fileno()).st_size // SLOT_BYTES * SLOT_BYTES
        while end > fmt.HEADER.size:
            begin = max(end - _CHUNK_BYTES, fmt.HEADER.size)
            words = np.frombuffer(os.pread(file.fileno(), end - begin, begin), dtype="<u8")
            written = np.flatnonzero(words)
            if len(written):
                last = int(written[-1])
                return begin // SLOT_BYTES + last if words[last] == _END_WORD else None
            end = begin
    return None
