"""Joins segments of a log that has ended into a few long files: on a file server, files cost more than bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.reader import event_segments
from prismdbg.log import segment as seg
from prismdbg.log.summary import put

JOINED_BYTES = 32 << 20
APART = 3  # of the newest: who asks how far a rank came reads the last two, and they are short
_END = fmt.RECORD.pack(fmt.RECORD.size, fmt.Kind.END, 0)
_END_WORD = np.frombuffer(_END, dtype="<u8")[0]

Numbered = tuple[int, Path]


def join(folder: Path, most_bytes: int = JOINED_BYTES) -> None:
    """All but the oldest segment, which may be a preface, and the newest. Nobody may write to the log any more.

    A reader finds all of it at any time: a joined file stands for its parts while they are still there
    (`event_segments`). `OSError` where there is no room for one.
    """
    for group in _groups(event_segments(folder)[1:-APART], most_bytes):
        data = _joined(group)
        if data is None:  # cut: it stays as it is, and whoever reads it says so
            continue
        put(folder / fmt.joined_segment(group[0][0], group[-1][0]), data)
        for _, path in group:
            path.unlink()


def _groups(segments: Sequence[Numbered], most_bytes: int) -> list[list[Numbered]]:
    """Neighbours that fit into one file."""
    groups: list[list[Numbered]] = []
    left = 0
    for number, path in segments:
        size_bytes = path.stat().st_size
        if path.name != fmt.event_segment(number):  # joined before
            left = 0
            continue
        if size_bytes > left:
            groups.append([])
            left = most_bytes
        groups[-1].append((number, path))
        left -= size_bytes
    return [group for group in groups if len(group) > 1]


def _joined(group: Sequence[Numbered]) -> bytes | None:
    """The records of all under the first one's header; None where one was not filled."""
    bodies = []
    for _, path in group:
        words = seg.read_words(path)
        end = _end(words)
        if end is None:
            return None
        bodies.append(words[fmt.HEADER.size // seg.SLOT_BYTES : end].tobytes())
    with group[0][1].open("rb") as file:
        magic, version, number, rank, pid, wall_ns, monotonic_ns, _ = fmt.HEADER.unpack(file.read(fmt.HEADER.size))
    size_bytes = fmt.HEADER.size + sum(map(len, bodies)) + len(_END)
    header = fmt.HEADER.pack(magic, version, number, rank, pid, wall_ns, monotonic_ns, size_bytes)
    return b"".join([header, *bodies, _END])


def _end(words: seg.Words) -> int | None:
    """The slot of END. Behind it there are only zeros, so no record is walked over."""
    written = np.flatnonzero(words)
    last = int(written[-1]) if len(written) else 0
    return last if last * seg.SLOT_BYTES >= fmt.HEADER.size and words[last] == _END_WORD else None
