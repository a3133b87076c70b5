"""The memory trace of `record --memory` as a part of a capsule: written when it is made, found when it is opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prismdbg.capsule import layout, memory_format, transfer
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.memory_reader import is_trace
from prismdbg.errors import CapsuleError
from prismdbg.model.moment import Moment

MOST_BYTES = 1 << 30
_COUNT_AT = memory_format.HEADER.size - 16  # of the records that are there; zeros follow
_RECORD = memory_format.RECORD.size
_PLACE = np.dtype({"names": ["step", "collective"], "formats": ["<u4"] * 2, "offsets": [32, 36], "itemsize": _RECORD})


def packed_trace(capsule: Capsule) -> Path | None:
    folder = capsule.path / layout.MEMORY
    return folder if is_trace(folder) else None


def whole_trace(capsule: Capsule) -> Path | None:
    """As `packed_trace`. `CapsuleError` where a file of it is missing: the others would be read as another trace."""
    if faults := capsule.faults_below(layout.MEMORY):
        raise CapsuleError(f"{capsule.path}: {faults[0]}", hint="capture the rank again, or fetch the capsule again")
    return packed_trace(capsule)


def add_trace(writer: CapsuleWriter, folder: Path, end: Moment | None) -> str:
    """What was traced before the collective `end`, or all; a rank that lives may write on meanwhile. Gives a note where
    there is a trace that is too large for a capsule."""
    if not is_trace(folder):
        return ""
    segments = sorted(folder.glob("memory.*.seg"))
    size = sum(map(_size_bytes, segments))
    if size > MOST_BYTES:
        return f"the memory trace of {size >> 20} MiB was left in the run folder: `prismdbg memory RUN` shows it"
    for path in segments:
        data = _content(path)
        kept = cut(data, end)
        if kept:
            writer.add_bytes(f"{layout.MEMORY}/{path.name}", kept)
        if len(kept) < len(data):
            break
    if (folder / memory_format.BEGAN).is_file():
        writer.add_file(f"{layout.MEMORY}/{memory_format.BEGAN}", folder / memory_format.BEGAN)
    for path in sorted(folder.glob("events.*.seg")):  # last: every number in a record has its name in here
        writer.add_file(f"{layout.MEMORY}/{path.name}", path)
    return ""


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise CapsuleError(
            f"{path} cannot be read: {error.strerror}", hint="trace or fetch it again: the trace is damaged"
        ) from error


def _content(path: Path) -> bytes:
    try:
        with transfer.open_plain(path) as file:
            return file.read()
    except OSError as error:
        raise CapsuleError(
            f"{path} cannot be read: {error.strerror}", hint="trace or fetch it again: the trace is damaged"
        ) from error


def cut(segment: bytes, end: Moment | None) -> bytes:
    """The segment as far as it is written and lies before `end`; nothing of one that was made a moment ago."""
    head = memory_format.HEADER
    if len(segment) < head.size or segment[: len(memory_format.MAGIC)] != memory_format.MAGIC:
        return b""
    count = min(int(head.unpack_from(segment)[-1]), (len(segment) - head.size) // _RECORD)
    if end is not None:
        rows = np.frombuffer(segment, dtype=_PLACE, count=count, offset=head.size)
        step, collective = rows["step"], rows["collective"]
        late = np.flatnonzero((step > end.step) | ((step == end.step) & (collective >= end.collective)))
        count = int(late[0]) if len(late) else count
    records = segment[head.size : head.size + count * _RECORD]
    return segment[:_COUNT_AT] + count.to_bytes(8, "little") + segment[_COUNT_AT + 8 : head.size] + records
