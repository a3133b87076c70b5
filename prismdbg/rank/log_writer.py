"""Writes a rank's log from Python; the native recorder writes the same bytes faster. Format: `capsule/log_format.py`.

Every segment is allocated before it is mapped: a store into a hole on a full disk would be SIGBUS.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from pathlib import Path

from prismdbg.capsule import log_format as fmt
from prismdbg.model.collective import Frame, TensorMeta
from prismdbg.model.dtypes import NUMBERS

RESERVE_BYTES = 1024  # at the end of a segment: the last NOTE when no other segment can be had


class Segment:
    """One allocated, mapped file."""

    def __init__(self, path: Path, size_bytes: int, *, existing: bool = False) -> None:
        self.path = path
        self.size_bytes = size_bytes
        descriptor = os.open(path, os.O_RDWR | (0 if existing else os.O_CREAT | os.O_EXCL), 0o600)
        try:
            if not existing:
                os.posix_fallocate(descriptor, 0, size_bytes)
            self.map = mmap.mmap(descriptor, size_bytes)
        except OSError:
            if not existing:
                with contextlib.suppress(OSError):
                    path.unlink()
            raise
        finally:
            os.close(descriptor)

    def close(self) -> None:
        self.map.close()


class LogWriter:
    """Appends records. Thread safe. Raises `OSError` when a segment cannot be made; the caller fails open."""

    def __init__(self, folder: Path, rank: int, segment_bytes: int = fmt.EVENT_SEGMENT_BYTES) -> None:
        self.folder = folder
        self._rank = rank
        self._segment_bytes = segment_bytes
        self._lock = threading.RLock()
        self._texts: dict[str, int] = {"": 0}
        self._stacks: dict[tuple[Frame, ...], int] = {(): 0}
        self._index = -1
        self._offset = 0
        self._segment: Segment | None = None
        self._held: list[tuple[int, bytes]] = []
        self.written_bytes = 0
        self._next_segment()

    def append(self, kind: int, body: bytes) -> None:
        size = -(-(fmt.RECORD.size + len(body)) // 8) * 8
        with self._lock:
            if self._segment is None:
                self._held.append((kind, body))
                return
            if not self._fits(size, RESERVE_BYTES):
                try:
                    self._next_segment(at_least=size)
                except OSError:
                    if kind != fmt.Kind.NOTE or not self._fits(size, 0):
                        raise
            self._store(kind, body, size)

    def _fits(self, size: int, reserve: int) -> bool:
        return self._offset + size + reserve + fmt.RECORD.size <= self._segment_bytes

    def _store(self, kind: int, body: bytes, size: int) -> None:
        assert self._segment is not None
        data, start = self._segment.map, self._offset
        data[start + fmt.RECORD.size : start + fmt.RECORD.size + len(body)] = body
        data[start + 4 : start + 8] = kind.to_bytes(2, "little") + b"\0\0"
        data[start : start + 4] = size.to_bytes(4, "little")
        self._offset += size
        self.written_bytes += size

    def text(self, value: str) -> int:
        """The number of a text, written once."""
        with self._lock:
            number = self._texts.get(value)
            if number is None:
                number = len(self._texts)
                data = value.encode("utf-8", "replace")
                self.append(fmt.Kind.TEXT, fmt.TEXT.pack(number, len(data)) + data)
                self._texts[value] = number
            return number

    def stack(self, frames: tuple[Frame, ...]) -> int:
        """The number of a stack, innermost frame first, written once."""
        with self._lock:
            number = self._stacks.get(frames)
            if number is None:
                rows = b"".join(fmt.FRAME.pack(self.text(f.filename), f.line, self.text(f.name)) for f in frames)
                number = len(self._stacks)
                self.append(fmt.Kind.STACK, fmt.STACK.pack(number, len(frames)) + rows)
                self._stacks[frames] = number
            return number

    def close(self) -> None:
        """Unmaps; `reopen` goes on after the last record, with what was appended meanwhile."""
        with self._lock:
            if self._segment is not None:
                self._segment.close()
                self._segment = None

    def reopen(self) -> None:
        with self._lock:
            if self._segment is None:
                path = self.folder / fmt.event_segment(self._index)
                self._segment = Segment(path, path.stat().st_size, existing=True)
                held, self._held = self._held, []
                for kind, body in held:
                    self.append(kind, body)

    def _next_segment(self, at_least: int = 0) -> None:
        index = self._index + 1
        size = max(self._segment_bytes, fmt.HEADER.size + at_least + RESERVE_BYTES + fmt.RECORD.size)
        segment = Segment(self.folder / fmt.event_segment(index), size)
        fmt.HEADER.pack_into(
            segment.map,
            0,
            fmt.MAGIC,
            fmt.VERSION,
            index,
            self._rank,
            os.getpid(),
            time.time_ns(),
            time.monotonic_ns(),
            size,
        )
        if self._segment is not None:
            self._store(fmt.Kind.END, b"", fmt.RECORD.size)
            self._segment.close()
        self._segment, self._index, self._offset = segment, index, fmt.HEADER.size


def encode_tensors(metas: list[TensorMeta]) -> tuple[int, bytes]:
    """Entries and bytes; a run of equal tensors is one entry."""
    entries, parts, start = 0, [], 0
    while start < len(metas):
        end = start + 1
        while end < len(metas) and metas[end] == metas[start]:
            end += 1
        meta = metas[start]
        parts.append(fmt.TENSOR.pack(NUMBERS.get(meta.dtype, 0), len(meta.shape), 0, end - start))
        parts.extend(size.to_bytes(8, "little", signed=True) for size in meta.shape)
        entries, start = entries + 1, end
    return entries, b"".join(parts)


class PayloadWriter:
    """Payload segments of a rank. The oldest are unlinked as the window moves; none is ever reused in place.

    Whole segments go: at least the window's steps are there, at most its bytes (0: no limit) and the newest payload.
    Nothing is mapped and nothing stays open: a process image holds none of it, and a full disk is an `OSError`.
    """

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._index = -1
        self._last_step: dict[int, int] = {}
        self._sizes: dict[int, int] = {}

    @property
    def total_bytes(self) -> int:
        return sum(self._sizes.values())

    def write(self, parts: list[memoryview], step: int, limit_bytes: int) -> tuple[int, int, int]:
        """Stores the parts one after another: (segment, offset, bytes)."""
        size = sum(part.nbytes for part in parts)
        with self._lock:
            start = self._sizes.get(self._index, 0)
            # a quarter of the limit at most, or removing one segment would empty the window
            longest = min(self._segment_bytes, limit_bytes // 4) if limit_bytes else self._segment_bytes
            if self._index < 0 or start + size > longest:
                self._index, start = self._index + 1, 0
            self._append(parts, start)
            self._sizes[self._index] = -(-(start + size) // 64) * 64
            self._last_step[self._index] = step
            if limit_bytes:
                self._drop_above(limit_bytes)
            return self._index, start, size

    def drop_before(self, step: int) -> None:
        """Unlinks segments whose last payload lies before `step`."""
        with self._lock:
            for index in [i for i, last in self._last_step.items() if last < step and i != self._index]:
                self._drop(index)

    def _append(self, parts: list[memoryview], position: int) -> None:
        path = self._folder / fmt.payload_segment(self._index)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for part in parts:
                left = part.cast("B")
                while left:
                    written = os.pwrite(descriptor, left, position)
                    left, position = left[written:], position + written
        finally:
            os.close(descriptor)

    def _drop_above(self, limit_bytes: int) -> None:
        for index in sorted(self._sizes):
            if self.total_bytes <= limit_bytes or index == self._index:
                return
            self._drop(index)

    def _drop(self, index: int) -> None:
        (self._folder / fmt.payload_segment(index)).unlink(missing_ok=True)
        self._sizes.pop(index, None)
        self._last_step.pop(index, None)
