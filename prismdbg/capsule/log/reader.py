"""Reads a rank's log: while it is written, after `kill -9`, or inside a capsule. See `format.py` for the bytes."""

from __future__ import annotations

import os
import re
import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter
from pathlib import Path

from prismdbg.capsule.file_window import FileWindow
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.clock_reads import ClockRead
from prismdbg.capsule.log.events import Completion, Event, Note, RankLog, StepMark, Waited
from prismdbg.capsule.log.part_table import SLOT_BYTES, part_table
from prismdbg.capsule.log.records import RecordDecoder
from prismdbg.capsule.transfer import open_plain
from prismdbg.errors import CapsuleError
from prismdbg.model.collective import Collective, Group, PayloadRef

DAMAGED = "record or fetch it again: the log is damaged"
_CHUNK_BYTES = 64 << 10  # of a segment, read at once
_UNCHANGED_NS = 10_000_000_000  # clocks of file systems are coarse, and another machine's may be late
_SEGMENT = re.compile(r"events\.([0-9]{5,9})(?:-([0-9]{5,9}))?\.seg")

ATTEMPT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")  # a rank's folder: its number, and that of its attempt


class LogReader:
    """Follows one log folder. `poll` gives what was written since the last call; `read_log` gives all at once.

    A folder whose first segment was pruned can still be read: what a missing segment defined is unknown and
    reads as empty. Damaged bytes raise `CapsuleError` naming file and offset, after all before them was given.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rank = -1
        self.pid = 0
        self.wall_offset_ns = 0
        self.damage: CapsuleError | None = None
        self._segment = 0
        self._offset = 0
        self._listed: list[tuple[int, Path]] = []
        self._listed_ns: int | None = None
        self._within: Path | None = None  # the file that `_offset` is in, where it is found in a list of all
        self._records = RecordDecoder()
        self._open: dict[int, Collective] = {}
        self._handlers = self._by_kind()

    def _by_kind(self) -> dict[int, Callable[[bytes], Event | None]]:
        """What makes an event of a record's body."""
        return {
            int(fmt.Kind.TEXT): self._records.text,
            int(fmt.Kind.STACK): self._records.stack,
            int(fmt.Kind.GROUP): self._records.group,
            int(fmt.Kind.ISSUE): self._issue,
            int(fmt.Kind.COMPLETE): self._complete,
            int(fmt.Kind.STEP): self._records.step,
            int(fmt.Kind.NOTE): self._records.note,
            int(fmt.Kind.WAIT): lambda body: Waited(*fmt.WAIT.unpack_from(body)),
            int(fmt.Kind.CLOCK): ClockRead.from_bytes,
        }

    def poll(self) -> list[Event]:
        """Every event since the last call, in the order in which they were written. No segment is followed that was
        begun meanwhile: a rank may write faster than we read."""
        events: list[Event] = []
        newest: int | None = None
        while newest is None or self._segment <= newest:
            path = self._current_segment()
            if path is None:
                return events
            try:
                if not self._read_segment(path, events):
                    return events
            except CapsuleError as error:
                self.damage = error
                if events:
                    return events  # the next call raises it
                raise
            if newest is None:
                newest = max((number for number, _ in event_segments(self.folder)), default=0)
            self._segment = segment_span(path)[1] + 1
            self._offset = 0
        return events

    def _current_segment(self) -> Path | None:
        """The segment to go on with, perhaps within a joined file; the next one there is where that was pruned. None:
        not written yet."""
        path = self.folder / fmt.event_segment(self._segment)
        if path.exists():
            return path
        segments = self._segments()
        at = bisect_right(segments, self._segment, key=itemgetter(0))
        if at and self._goes_on_in(segments[at - 1][1]):
            return segments[at - 1][1]
        if at == len(segments):
            return None
        self._segment, self._within = segments[at]
        self._offset = 0
        return self._within

    def _goes_on_in(self, path: Path) -> bool:
        """Whether a joined file has the segment; then, if it was joined meanwhile, the place is sought in it."""
        first, last = segment_span(path)
        if not first <= self._segment <= last or first == last:
            return False
        if path != self._within:
            with _readable(path):
                begin = dict(part_table(path, first, last)).get(self._segment)
            if begin is None and self._segment > first:
                return False
            done = max(self._offset - fmt.HEADER.size, 0)
            self._offset = 0 if begin is None else begin * SLOT_BYTES + done
            self._within = path
        return True

    def _segments(self) -> list[tuple[int, Path]]:
        """As they are now. A folder that has not changed for a while is not listed again: a capsule may have very many
        segments, and each is asked for."""
        try:
            changed_ns = self.folder.stat().st_mtime_ns
        except OSError:
            return []
        if changed_ns != self._listed_ns:
            is_old = abs(time.time_ns() - changed_ns) > _UNCHANGED_NS  # else it may change again at the same time
            self._listed, self._listed_ns = event_segments(self.folder), changed_ns if is_old else None
        return self._listed

    def _read_segment(self, path: Path, events: list[Event]) -> bool:
        """Appends to `events`; True when the segment was closed and the next one goes on."""
        with _readable(path), open_plain(path) as file:
            if file.seek(0, 2) < fmt.HEADER.size:
                return False
            data = FileWindow(file.fileno())
            return self._read_header(data, path) and self._read_records(data, path, events)

    def _read_header(self, data: FileWindow, path: Path) -> bool:
        if self._offset and self.rank >= 0:
            return True
        header = data[0 : fmt.HEADER.size]
        if len(header) < fmt.HEADER.size:  # cut meanwhile
            return False
        known = read_header(header, segment_span(path)[0], path)
        if known is None:
            return False
        if self.rank < 0:  # later ones have another offset where the machine's clock was set
            self.rank, self.pid, self.wall_offset_ns = known
        self._offset = self._offset or fmt.HEADER.size
        return True

    def _read_records(self, data: FileWindow, path: Path, events: list[Event]) -> bool:
        end, wanted = len(data), _CHUNK_BYTES
        while self._offset + fmt.RECORD.size <= end:
            chunk = data[self._offset : self._offset + wanted]
            if len(chunk) < min(wanted, end - self._offset):  # cut meanwhile
                return False
            closed, wanted = self._read_chunk(chunk, end, path, events)
            if closed is not None:
                return closed
        return True

    def _read_chunk(self, chunk: bytes, end: int, path: Path, events: list[Event]) -> tuple[bool | None, int]:
        """Whether the segment is closed, or what is read of it ends here; None where it goes on, and then the bytes
        that are wanted next. This loop is what following a job costs."""
        base, at, length, head = self._offset, 0, len(chunk), fmt.RECORD.size
        unpack, handlers = fmt.RECORD.unpack_from, self._handlers
        while at + head <= length:
            size, kind, _ = unpack(chunk, at)
            if size == 0:
                return False, 0
            if size % 8 or size < head or base + at + size > end:
                what = f"{path} is damaged at offset {base + at}, in a record of {size} bytes"
                raise CapsuleError(what, hint=DAMAGED)
            if at + size > length:
                return None, max(size, _CHUNK_BYTES)
            handler = handlers.get(kind)
            if handler is not None:  # else of a newer writer: skipped
                try:
                    event = handler(chunk[at + head : at + size])
                except (CapsuleError, ValueError, struct.error) as error:
                    raise CapsuleError(f"{path} is damaged at offset {base + at}: {error}", hint=DAMAGED) from error
                if event is not None:
                    events.append(event)
            elif kind == fmt.Kind.END:
                return True, 0
            at += size
            self._offset = base + at
        return None, _CHUNK_BYTES

    def _issue(self, body: bytes) -> Collective:
        collective = self._records.collective(body)
        self._open[collective.record_id] = collective
        return collective

    def _complete(self, body: bytes) -> Completion | None:
        issued = self._open.pop(fmt.COMPLETE.unpack_from(body)[0], None)
        return None if issued is None else Completion(self._records.completed(issued, body))


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CapsuleError(f"{path} cannot be read: {error.strerror}", hint=DAMAGED) from error


_LATEST_NS = 1 << 62  # in the year 2116; sums of later times do not fit into 64 bits


def read_header(header: bytes, number: int, path: Path) -> tuple[int, int, int] | None:
    """Rank, PID, and the offset of the log's times from the epoch, in ns; None where it is not stored yet."""
    magic, version, index, rank, pid, wall, monotonic, _size = fmt.HEADER.unpack(header)
    if magic == bytes(8):  # allocated only
        return None
    if magic != fmt.MAGIC:
        raise CapsuleError(
            f"{path} is not a prismdbg log", hint="check the path: the file is damaged, or another program wrote it"
        )
    if version != fmt.VERSION:
        raise CapsuleError(
            f"{path} has log format {version}; this version reads {fmt.VERSION}", hint="use a newer prismdbg"
        )
    if index != number:
        raise CapsuleError(
            f"{path} has segment number {index}", hint="fetch it again: files of different logs were mixed"
        )
    if not (0 <= wall < _LATEST_NS and 0 <= monotonic < _LATEST_NS):
        raise CapsuleError(f"{path} has an impossible start time", hint="fetch it again: the file was altered")
    return rank, pid, wall - monotonic


def event_segments(folder: Path) -> list[tuple[int, Path]]:
    """With their numbers, in order; what only looks like one is passed over. A joined one has the number of its first
    part, and stands for parts that are still there."""
    paths = [path for path in folder.glob("events.*.seg") if _SEGMENT.fullmatch(path.name)]
    spans = {path: segment_span(path) for path in paths}
    joined = sorted(span for span in spans.values() if span[0] < span[1])
    begins = [begin for begin, _ in joined]
    ends = list(accumulate((end for _, end in joined), max))  # the last of all that begin no later
    return sorted(
        (first, path)
        for path, (first, last) in spans.items()
        if first < last or not ((before := bisect_right(begins, first)) and first <= ends[before - 1])
    )


def segment_span(path: Path) -> tuple[int, int]:
    """The numbers of the first and the last segment in this file, by its name."""
    match = _SEGMENT.fullmatch(path.name)
    assert match is not None, path
    return int(match[1]), int(match[2] or match[1])


def read_log(folder: Path) -> RankLog:
    """The whole log of one rank. Raises `CapsuleError` where there is none or it is damaged."""
    reader = LogReader(folder)
    events = reader.poll()
    if reader.rank < 0:
        raise CapsuleError(f"no log in {folder}", hint="check the path, or wait until the rank has issued a collective")
    if reader.damage is not None:
        raise reader.damage
    return _folded(reader, events)


def was_cut(folder: Path) -> bool:
    """Whether the last segment of a recorded log is shorter than it was made, or gone: what it held is not known."""
    last = max(folder.glob("events.*.seg"), default=None)
    if last is None:
        return True
    with open_plain(last) as file:
        header = file.read(fmt.HEADER.size)
        if len(header) < fmt.HEADER.size:
            return True
        size_bytes: int = fmt.HEADER.unpack(header)[-1]
        return file.seek(0, 2) < size_bytes


def _folded(reader: LogReader, events: list[Event]) -> RankLog:
    collectives: dict[int, Collective] = {}
    log = RankLog(reader.rank, reader.pid, reader.wall_offset_ns)
    for event in events:
        match event:
            case Collective():
                collectives[event.record_id] = event
            case Completion(done):
                if (known := collectives.get(done.record_id)) is not None:  # its wait may have been told before
                    collectives[done.record_id] = replace(
                        done, time_waited_ns=known.time_waited_ns, waiting_thread_id=known.waiting_thread_id
                    )
            case Waited():
                if (known := collectives.get(event.record_id)) is not None:
                    collectives[event.record_id] = replace(
                        known, time_waited_ns=event.time_ns, waiting_thread_id=event.thread_id
                    )
            case StepMark():
                log.steps.append(event)
            case Note():
                log.notes.append(event)
            case Group():
                log.groups[event.name] = event
            case ClockRead():
                log.clock_reads.append(event)
    log.collectives = [collectives[number] for number in sorted(collectives)]  # threads write in another order
    return log


def read_payload(folder: Path, ref: PayloadRef) -> bytearray:
    """The bytes one collective received. `CapsuleError` where the segment is gone, too short or not readable."""
    with _payload_of(folder, ref) as segment:
        data = bytearray(ref.size_bytes)
        _read_into([memoryview(data)], segment, folder, ref)
        return data


def read_payload_into(buffers: Sequence[memoryview], folder: Path, ref: PayloadRef) -> None:
    """As `read_payload`, into one buffer after the other; together they have its size."""
    with _payload_of(folder, ref) as segment:
        _read_into(buffers, segment, folder, ref)


@contextmanager
def _payload_of(folder: Path, ref: PayloadRef) -> Iterator[int]:
    """The descriptor of the segment, which holds all of it."""
    path = folder / fmt.payload_segment(ref.segment)
    try:
        with open_plain(path) as file:
            if ref.offset + ref.size_bytes > (end := file.seek(0, 2)):
                raise _too_short(folder, end, ref)
            yield file.fileno()
    except FileNotFoundError:
        raise CapsuleError(
            f"payload segment {path.name} is not in {folder}",
            hint="record with a larger --window: this window no longer covers it",
        ) from None
    except OSError as error:
        raise CapsuleError(f"{path} cannot be read: {error.strerror}", hint=DAMAGED) from error


def _read_into(buffers: Sequence[memoryview], segment: int, folder: Path, ref: PayloadRef) -> None:
    offset = ref.offset
    for buffer in buffers:
        done = 0
        while done < len(buffer):
            read = os.preadv(segment, [buffer[done:]], offset)
            if not read:  # it was cut since it was opened
                raise _too_short(folder, offset, ref)
            done, offset = done + read, offset + read


def _too_short(folder: Path, end: int, ref: PayloadRef) -> CapsuleError:
    return CapsuleError(
        f"{folder / fmt.payload_segment(ref.segment)} ends at byte {end}, expected {ref.offset + ref.size_bytes}",
        hint="read another rank's log: this file is truncated",
    )


def iter_logs(run_ranks: Path) -> Iterator[Path]:
    """The log folders below a run's `ranks/`, in rank order, later attempts last. Other folders are none of ours."""
    found = [path for path in run_ranks.iterdir() if ATTEMPT.fullmatch(path.name) and path.is_dir()]
    yield from sorted(found, key=lambda path: [int(number) for number in path.name.split(".")])
