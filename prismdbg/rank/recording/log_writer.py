"""Writes a rank's log from Python; the native recorder writes the same bytes faster. Format: `capsule/log/format.py`.

A full disk is told when a segment is made. What may have to wait for a server is left to another thread (`queue`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from prismdbg.capsule.log import format as fmt
from prismdbg.model.collective import Frame, TensorMeta
from prismdbg.model.dtypes import NUMBERS, UNKNOWN
from prismdbg.rank.recording.write_queue import WriteQueue

RESERVE_BYTES = 1024  # at the end of a segment: the last NOTE when no other segment can be had


class Segment:
    """One file of a fixed size, allocated when it is made and written by pwrite, never mapped: a store into a mapping
    whose file was cut, or whose disk fails, is a SIGBUS that ends the job."""

    def __init__(self, path: Path, size_bytes: int, *, existing: bool = False) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._descriptor = _open(path, os.O_RDWR | (0 if existing else os.O_CREAT | os.O_EXCL))
        self._file = _identity(os.fstat(self._descriptor))
        try:
            if not existing:
                os.posix_fallocate(self._descriptor, 0, size_bytes)
            self._check()
        except OSError:
            os.close(self._descriptor)
            if not existing:
                with contextlib.suppress(OSError):
                    path.unlink()
            raise

    def write(self, at: int, head: bytes, rest: bytes) -> None:
        """`rest` behind `head`, first: whoever reads meanwhile sees all of it once he sees `head`."""
        self._check()
        _write_all(self._descriptor, memoryview(rest), at + len(head))
        _write_all(self._descriptor, memoryview(head), at)

    def _check(self) -> None:
        """The program may close any descriptor, and have the number again for a file of its own."""
        now = os.fstat(self._descriptor)
        if _identity(now) != self._file:
            raise OSError(errno.EBADF, "closed by the program", str(self.path))
        if now.st_size < self.size_bytes:
            raise OSError(errno.EIO, "shorter than it was", str(self.path))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if _identity(os.fstat(self._descriptor)) == self._file:
                os.close(self._descriptor)


class DistantSegment:
    """As `Segment`, on a file system with a server: nothing of it is open but while the queue's thread writes, for a
    process cannot end while a server owes it the closing of a file."""

    def __init__(self, queue: WriteQueue, path: Path, size_bytes: int, *, existing: bool = False) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._queue = queue
        if not existing:
            queue.do(0, lambda: Segment(path, size_bytes).close())

    def write(self, at: int, head: bytes, rest: bytes) -> None:
        self._queue.do(len(head) + len(rest), partial(self._write, at, head, rest))

    def _write(self, at: int, head: bytes, rest: bytes) -> None:
        segment = Segment(self.path, self.size_bytes, existing=True)
        try:
            segment.write(at, head, rest)
        finally:
            segment.close()

    def close(self) -> None:
        pass


def _open(path: Path, flags: int) -> int:
    """Never one of the standard streams' numbers: a program that has closed one takes the next file for it."""
    descriptor = os.open(path, flags, 0o600)
    if descriptor > 2:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, left: memoryview, position: int) -> None:
    while left:
        written = os.pwrite(descriptor, left, position)
        left, position = left[written:], position + written


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


class LogWriter:
    """Appends records. Thread safe. Raises `OSError` when a segment cannot be made; the caller fails open."""

    def __init__(
        self, queue: WriteQueue, folder: Path, rank: int, segment_bytes: int = fmt.EVENT_SEGMENT_BYTES
    ) -> None:
        self.folder = folder
        self._queue = queue
        self._rank = rank
        self._segment_bytes = segment_bytes
        self._lock = threading.RLock()
        self._texts: dict[str, int] = {"": 0}
        self._stacks: dict[tuple[Frame, ...], int] = {(): 0}
        self._next_text = self._next_stack = 1
        self._index = -1
        self._offset = 0
        self._segment: Segment | DistantSegment | None = None
        self._size_bytes = 0  # of the segment that is written
        self._held: list[tuple[int, bytes]] = []
        self._unwritten: deque[tuple[int, bytes]] = deque()
        self._is_writing = False
        self.written_bytes = 0
        self._next_segment()

    @property
    def is_closed(self) -> bool:
        return self._segment is None

    def append(self, kind: int, body: bytes) -> None:
        with self._lock:
            if self._segment is None:
                self._held.append((kind, body))
                return
            self._unwritten.append((kind, body))
            # a signal's handler may append while this thread writes: what it gave is written after that
            while self._unwritten and not self._is_writing:
                self._write_waiting()

    def _write_waiting(self) -> None:
        self._is_writing = True
        try:
            while self._unwritten:
                self._write(*self._unwritten.popleft())
        except OSError:
            self._unwritten.clear()  # the next record is to be tried by itself
            raise
        finally:
            self._is_writing = False

    def _write(self, kind: int, body: bytes) -> None:
        size = -(-(fmt.RECORD.size + len(body)) // 8) * 8
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
        self._segment.write(self._offset, fmt.RECORD.pack(size, kind, 0), body)
        self._offset += size
        self.written_bytes += size

    def text(self, value: str) -> int:
        """The number of a text, written once."""
        with self._lock:
            number = self._texts.get(value)
            if number is None:  # a signal's handler that has the same text to write gives it another number
                number = self._next_text
                self._next_text = number + 1
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
                number = self._next_stack
                self._next_stack = number + 1
                self.append(fmt.Kind.STACK, fmt.STACK.pack(number, len(frames)) + rows)
                self._stacks[frames] = number
            return number

    def close(self) -> None:
        """Closes the file; `reopen` goes on after the last record, with what was appended meanwhile."""
        with self._lock:
            if self._segment is not None:
                self._segment.close()
                self._segment = None

    def reopen(self) -> None:
        with self._lock:
            if self._segment is None:
                self._segment = self._open_segment(self._index, self._size_bytes, existing=True)
                held, self._held = self._held, []
                for kind, body in held:
                    self.append(kind, body)

    def _next_segment(self, at_least: int = 0) -> None:
        index = self._index + 1
        size = max(self._segment_bytes, fmt.HEADER.size + at_least + RESERVE_BYTES + fmt.RECORD.size)
        segment = self._open_segment(index, size)
        header = fmt.HEADER.pack(
            fmt.MAGIC,
            fmt.VERSION,
            index,
            self._rank,
            os.getpid(),
            time.time_ns(),
            time.monotonic_ns(),
            size,
        )
        segment.write(0, header[: len(fmt.MAGIC)], header[len(fmt.MAGIC) :])
        if self._segment is not None:
            self._store(fmt.Kind.END, b"", fmt.RECORD.size)
            self._segment.close()
        self._segment, self._index, self._offset, self._size_bytes = segment, index, fmt.HEADER.size, size

    def _open_segment(self, index: int, size_bytes: int, *, existing: bool = False) -> Segment | DistantSegment:
        path = self.folder / fmt.event_segment(index)
        if self._queue.is_direct:
            return Segment(path, size_bytes, existing=existing)
        return DistantSegment(self._queue, path, size_bytes, existing=existing)


def encode_tensors(metas: list[TensorMeta]) -> tuple[int, bytes]:
    """Entries and bytes; a run of equal tensors is one entry."""
    entries, parts, start = 0, [], 0
    while start < len(metas):
        end = start + 1
        while end < len(metas) and metas[end] == metas[start]:
            end += 1
        meta = metas[start]
        parts.append(fmt.TENSOR.pack(NUMBERS.get(meta.dtype, UNKNOWN), len(meta.shape), 0, end - start))
        parts.extend(size.to_bytes(8, "little", signed=True) for size in meta.shape)
        entries, start = entries + 1, end
    return entries, b"".join(parts)


class PayloadWriter:
    """Payload segments of a rank. The oldest are unlinked as the window moves; none is ever reused in place.

    Whole segments go: at least the window's steps are there, at most its bytes (0: no limit) and the newest payload.
    Before a restore point small payloads stand in segments of their own, which are not of the window.
    Nothing is mapped and nothing stays open: a checkpoint holds none of it, and a full disk is an `OSError`.
    """

    def __init__(self, queue: WriteQueue, folder: Path, segment_bytes: int) -> None:
        self._queue = queue
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._lock = threading.RLock()  # a signal's handler may have a payload, too: each has its place first
        self._next = 0
        self._window = _Lane()
        self._small = _Lane()
        self._small_each_bytes = self._small_room_bytes = 0
        self._dropped_bytes = self._crowded_bytes = 0

    @property
    def total_bytes(self) -> int:
        return self._window.total_bytes + self._small.total_bytes

    def keep_small(self, each_bytes: int, total_bytes: int) -> tuple[int, int]:
        """As `Recorder.keep_small`."""
        with self._lock:
            window, small = self._window, self._small
            window.sizes = {**small.sizes, **window.sizes}
            window.last_step = {**small.last_step, **window.last_step}
            self._small = _Lane()
            self._small_each_bytes, self._small_room_bytes = each_bytes, total_bytes
            not_kept, self._dropped_bytes, self._crowded_bytes = (self._dropped_bytes, self._crowded_bytes), 0, 0
            return not_kept

    def write(self, parts: list[memoryview], step: int, limit_bytes: int) -> tuple[int, int, int] | None:
        """Stores the parts one after another: (segment, offset, bytes). None for what is left out alone."""
        size = sum(part.nbytes for part in parts)
        with self._lock:
            lane = self._lane_of(size)
            if lane is self._window and self._small_each_bytes and 0 < limit_bytes < size:
                self._dropped_bytes += size
                return None
            # a quarter of the limit at most, or removing one segment would empty the window
            longest = min(self._segment_bytes, limit_bytes // 4) if limit_bytes else self._segment_bytes
            index, start = self._reserve(lane, size, longest)
            lane.last_step[index] = step
            if not self._queue.is_direct:  # the program goes on to use them
                parts = [memoryview(bytes(part)) for part in parts]
            path = self._folder / fmt.payload_segment(index)
            self._queue.do(size, partial(_append, path, parts, start), is_required=False)
            if limit_bytes:
                self._drop_above(limit_bytes)
            return index, start, size

    def _reserve(self, lane: _Lane, size: int, longest: int) -> tuple[int, int]:
        """A segment, and where in it the payload begins. No call is between the lines that take the place."""
        aligned = _aligned(size)
        if lane.index not in lane.sizes or lane.sizes[lane.index] + size > longest:
            lane.index = self._next
            self._next += 1
            lane.sizes[lane.index] = 0
        index = lane.index
        start = lane.sizes[index]
        lane.sizes[index] = start + aligned
        return index, start

    def _lane_of(self, size: int) -> _Lane:
        if size > self._small_each_bytes:
            return self._window
        if (aligned := _aligned(size)) > self._small_room_bytes:
            self._crowded_bytes += size
            return self._window
        self._small_room_bytes -= aligned
        return self._small

    def drop_before(self, step: int) -> None:
        """Unlinks segments whose last payload lies before `step`."""
        with self._lock:
            window = self._window
            for index in [i for i, last in window.last_step.items() if last < step and i != window.index]:
                self._drop(index)

    def _drop_above(self, limit_bytes: int) -> None:
        for index in sorted(self._window.sizes):
            if self._window.total_bytes <= limit_bytes or index == self._window.index:
                return
            self._drop(index)

    def _drop(self, index: int) -> None:
        path = self._folder / fmt.payload_segment(index)
        try:
            self._queue.do(0, partial(path.unlink, missing_ok=True), is_required=False)
        except OSError:
            if self._queue.is_direct:
                raise
            return  # too much waits: it goes with a later one
        size = self._window.sizes.pop(index, 0)
        self._window.last_step.pop(index, None)
        self._dropped_bytes += size if self._small_each_bytes else 0


@dataclass(slots=True)
class _Lane:
    """Segments by number. `index`: of the one that is written to, -1: none."""

    index: int = -1
    sizes: dict[int, int] = field(default_factory=dict)
    last_step: dict[int, int] = field(default_factory=dict)

    @property
    def total_bytes(self) -> int:
        return sum(self.sizes.values())


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // 64) * 64


def _append(path: Path, parts: list[memoryview], position: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for part in parts:
            _write_all(descriptor, part.cast("B"), position)
            position += part.nbytes
    finally:
        os.close(descriptor)
