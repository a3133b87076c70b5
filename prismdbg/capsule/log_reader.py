"""Reads a rank's log: while it is written, after `kill -9`, or inside a capsule. See `log_format` for the bytes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prismdbg.capsule import json_border
from prismdbg.capsule import log_format as fmt
from prismdbg.capsule.file_window import FileWindow
from prismdbg.capsule.limits import MAX_LISTED_TENSORS, MAX_TENSORS
from prismdbg.capsule.log_batch import Batch
from prismdbg.capsule.log_notes import checked_note, read_group
from prismdbg.capsule.transfer import open_plain
from prismdbg.errors import CapsuleError
from prismdbg.model import dtypes, made_up
from prismdbg.model.collective import (
    Collective,
    Failure,
    Frame,
    Group,
    Identity,
    PayloadRef,
    State,
    TensorMeta,
    Tensors,
)
from prismdbg.model.moment import Moment


@dataclass(frozen=True, slots=True)
class StepMark:
    """`step` begins at `time_ns`."""

    step: int
    time_ns: int
    source: fmt.StepSource


@dataclass(frozen=True, slots=True)
class Note:
    """Something the recorder said once: kind is `lost`, `parked`, `incident`, `exit`, ..., `data` the rest."""

    kind: str
    time_ns: int
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Completion:
    """A collective known before is now complete or failed; `collective` is the record with both halves."""

    collective: Collective


@dataclass(frozen=True, slots=True)
class Waited:
    """A thread began to wait for a collective that was issued before."""

    record_id: int
    time_ns: int
    thread_id: int


_CHUNK_BYTES = 64 << 10  # of a segment, read at once
_SEGMENT = re.compile(r"events\.([0-9]{5,9})\.seg")

ATTEMPT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")  # a rank's folder: its number, and that of its attempt

Event = Collective | Completion | Waited | StepMark | Note | Group | Batch


@dataclass(slots=True)
class RankLog:
    """All of a log up to one instant. `wall_offset_ns` added to a time gives nanoseconds since 1970."""

    rank: int
    pid: int
    wall_offset_ns: int
    collectives: list[Collective] = field(default_factory=list)
    steps: list[StepMark] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)


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
        self._texts: dict[int, str] = {0: ""}
        self._stacks: dict[int, tuple[Frame, ...]] = {0: ()}
        self._open: dict[int, Collective] = {}
        self._failures: dict[int, Failure] = {}
        self._lists = TensorLists()
        self._handlers = self._by_kind()

    def _by_kind(self) -> dict[int, Callable[[bytes], Event | None]]:
        """What makes an event of a record's body."""
        return {
            int(fmt.Kind.TEXT): self._text,
            int(fmt.Kind.STACK): self._stack,
            int(fmt.Kind.GROUP): self._group,
            int(fmt.Kind.ISSUE): self._issue,
            int(fmt.Kind.COMPLETE): self._complete,
            int(fmt.Kind.STEP): self._step,
            int(fmt.Kind.NOTE): self._note,
            int(fmt.Kind.WAIT): lambda body: Waited(*fmt.WAIT.unpack_from(body)),
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
            self._segment += 1
            self._offset = 0
        return events

    def _current_segment(self) -> Path | None:
        """The segment to go on with; the next one there is where that was pruned. None: not written yet."""
        path = self.folder / fmt.event_segment(self._segment)
        if path.exists():
            return path
        later = [(number, there) for number, there in event_segments(self.folder) if number > self._segment]
        if not later:
            return None
        self._segment, self._offset = later[0][0], 0
        return later[0][1]

    def _read_segment(self, path: Path, events: list[Event]) -> bool:
        """Appends to `events`; True when the segment was closed and the next one goes on."""
        try:
            with open_plain(path) as file:
                if file.seek(0, 2) < fmt.HEADER.size:
                    return False
                data = FileWindow(file.fileno())
                return self._read_header(data, path) and self._read_records(data, path, events)
        except OSError as error:
            raise CapsuleError(
                f"{path} cannot be read: {error.strerror}", hint="record or fetch it again: the log is damaged"
            ) from error

    def _read_header(self, data: FileWindow, path: Path) -> bool:
        if self._offset:
            return True
        header = data[0 : fmt.HEADER.size]
        if len(header) < fmt.HEADER.size:  # cut meanwhile
            return False
        magic, version, index, rank, pid, wall, monotonic, _size = fmt.HEADER.unpack(header)
        if magic == bytes(8):  # allocated, header not stored yet
            return False
        if magic != fmt.MAGIC:
            raise CapsuleError(
                f"{path} is not a prismdbg log", hint="check the path: the file is damaged, or another program wrote it"
            )
        if version != fmt.VERSION:
            raise CapsuleError(
                f"{path} has log format {version}; this version reads {fmt.VERSION}",
                hint="use a newer prismdbg",
            )
        if index != self._segment:
            raise CapsuleError(f"{path} has segment number {index}", hint="files of different logs were mixed")
        self.rank, self.pid, self.wall_offset_ns = rank, pid, wall - monotonic
        self._offset = fmt.HEADER.size
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
        base, at, last = self._offset, 0, len(chunk) - fmt.RECORD.size
        unpack, handlers = fmt.RECORD.unpack_from, self._handlers
        while at <= last:
            size, kind, _ = unpack(chunk, at)
            if size == 0:
                return False, 0
            if size % 8 or size < fmt.RECORD.size or base + at + size > end:
                raise CapsuleError(f"{path} is damaged at offset {base + at}: a record of {size} bytes")
            if at + size > len(chunk):
                return None, max(size, _CHUNK_BYTES)
            handler = handlers.get(kind)
            if handler is not None:  # else of a newer writer: skipped
                try:
                    event = handler(chunk[at + fmt.RECORD.size : at + size])
                except (CapsuleError, ValueError, struct.error) as error:
                    raise CapsuleError(f"{path} is damaged at offset {base + at}: {error}") from error
                if event is not None:
                    events.append(event)
            elif kind == fmt.Kind.END:
                return True, 0
            at += size
            self._offset = base + at
        return None, _CHUNK_BYTES

    def _text(self, body: bytes) -> None:
        number, size = fmt.TEXT.unpack_from(body)
        self._texts[number] = part(body, fmt.TEXT.size, size).decode("utf-8", "replace")

    def _stack(self, body: bytes) -> None:
        number, count = fmt.STACK.unpack_from(body)
        rows = fmt.FRAME.iter_unpack(part(body, fmt.STACK.size, count * fmt.FRAME.size))
        self._stacks[number] = tuple(Frame(self._texts.get(f, ""), line, self._texts.get(n, "")) for f, line, n in rows)

    def _step(self, body: bytes) -> StepMark:
        step, time_ns, source = fmt.STEP.unpack_from(body)
        return StepMark(step, time_ns, fmt.StepSource(source))

    def _group(self, body: bytes) -> Group:
        return read_group(json_border.parse(body.rstrip(b"\0"), "group", any_float=True))

    def _issue(self, body: bytes) -> Collective:
        collective = self._collective(body)
        self._open[collective.record_id] = collective
        return collective

    def _collective(self, body: bytes) -> Collective:
        """As it was issued."""
        (record_id, created, fingerprint, thread, seq, step, nth, op, group, stack, device,
         root, tag, timeout, reduce_op, flags, _, n_in, n_out) = fmt.ISSUE.unpack_from(body)  # fmt: skip
        device_name, _, stream = self._texts.get(device, "cpu").partition(fmt.STREAM)
        inputs, offset = self._lists.read(body, fmt.ISSUE.size, n_in, device_name)
        outputs, _ = self._lists.read(body, offset, n_out, device_name)
        if reduce_op != fmt.NO_REDUCE_OP and reduce_op >= len(dtypes.REDUCE_OPS):
            raise ValueError(f"unknown reduce operator {reduce_op}")
        if stream and not (stream.isascii() and stream.isdigit() and len(stream) < 19):
            raise ValueError(f"{stream[:40]!r} is not a stream")
        p2p = bool(flags & fmt.IssueFlag.P2P)
        op_name, group_name = self._texts.get(op, ""), self._texts.get(group, "")
        return Collective(
            record_id=record_id,
            moment=Moment(step, nth),
            identity=Identity(group_name, seq, op_name, root, tag) if p2p else Identity(group_name, seq),
            op=op_name,
            group=group_name,
            is_p2p=p2p,
            is_async=bool(flags & fmt.IssueFlag.ASYNC),
            root=root,
            tag=tag,
            reduce_op="" if reduce_op == fmt.NO_REDUCE_OP else dtypes.REDUCE_OPS[reduce_op],
            timeout_ms=timeout,
            inputs=inputs,
            outputs=outputs,
            fingerprint=fingerprint if flags & fmt.IssueFlag.HAS_FINGERPRINT else None,
            sent_nonfinite=bool(flags & fmt.IssueFlag.SENT_NONFINITE),
            time_created_ns=created,
            thread_id=thread,
            frames=self._stacks.get(stack, ()),
            stream=int(stream or 0),
        )

    def _note(self, body: bytes) -> Note:
        """Why a collective failed stands in front of its completion."""
        fields = checked_note(json_border.parse(body.rstrip(b"\0"), "note", any_float=True))
        note = Note(fields.pop("kind"), fields.pop("time_ns", 0), fields)
        if note.kind == "failed":
            data = note.data
            self._failures[data["record_id"]] = Failure(data["type"], data["text"], data["at_issue"])
        return note

    def _complete(self, body: bytes) -> Completion | None:
        issued = self._open.pop(fmt.COMPLETE.unpack_from(body)[0], None)
        return None if issued is None else Completion(self._completed(issued, body))

    def _completed(self, issued: Collective, body: bytes) -> Collective:
        record_id, time_ns, offset, size, segment, source, status, flags, way, _ = fmt.COMPLETE.unpack_from(body)
        return replace(
            issued,
            state=State.COMPLETED if status == fmt.Status.OK else State.FAILED,
            time_completed_ns=time_ns,
            received_nonfinite=bool(flags & fmt.CompleteFlag.RECEIVED_NONFINITE),
            source_rank=source,
            payload=PayloadRef(segment, offset, size) if flags & fmt.CompleteFlag.PAYLOAD else None,
            failure=self._failures.pop(record_id, None),
            synthesized=bool(flags & fmt.CompleteFlag.SYNTHESIZED),
            made=made_up.way_of(way),
        )


def part(body: bytes, offset: int, size: int) -> bytes:
    """Of a record. `ValueError` where that has no such part."""
    if offset + size > len(body):
        raise ValueError(f"{size} bytes do not fit into the record")
    return body[offset : offset + size]


class TensorLists:
    """The lists of tensors in one log, each kept once: collectives that are alike share theirs.

    A record may say that a tensor comes many times over, so what lists take is bounded for the log as a whole.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, str], tuple[TensorMeta, ...]] = {}
        self._listed = 0

    def read(self, body: bytes, offset: int, entries: int, device: str) -> tuple[tuple[TensorMeta, ...], int]:
        """The list that begins at `offset`, and where it ends. `ValueError` where the record has no room for it."""
        end = offset
        for _ in range(entries):
            dims = fmt.TENSOR.unpack_from(body, end)[1]
            end += fmt.TENSOR.size + 8 * dims
        if end > len(body):
            raise ValueError(f"{entries} tensors do not fit into the record")
        key = body[offset:end], device
        if key not in self._known:
            self._known[key] = self._listed_anew(key[0], entries, device)
        return self._known[key], end

    def _listed_anew(self, data: bytes, entries: int, device: str) -> tuple[TensorMeta, ...]:
        runs: list[tuple[TensorMeta, int]] = []
        offset = 0
        for _ in range(entries):
            number, dims, _, repeat = fmt.TENSOR.unpack_from(data, offset)
            shape = struct.unpack_from(f"<{dims}q", data, offset + fmt.TENSOR.size)
            offset += fmt.TENSOR.size + 8 * dims
            runs.append((TensorMeta(shape, dtypes.name_of(number), device), repeat))
        listed = sum(count for _, count in runs)
        self._listed += listed
        if listed > MAX_TENSORS:
            raise ValueError(f"a collective of {listed} tensors; the limit is {MAX_TENSORS}")
        if self._listed > MAX_LISTED_TENSORS:
            raise ValueError(f"more than {MAX_LISTED_TENSORS} tensors in lists that differ")
        return Tensors.of_runs(runs)


def event_segments(folder: Path) -> list[tuple[int, Path]]:
    """With their numbers, in order; what only looks like one is passed over."""
    found = [(int(match[1]), path) for path in folder.glob("events.*.seg") if (match := _SEGMENT.fullmatch(path.name))]
    return sorted(found)


def read_log(folder: Path) -> RankLog:
    """The whole log of one rank. Raises `CapsuleError` where there is none or it is damaged."""
    reader = LogReader(folder)
    events = reader.poll()
    if reader.rank < 0:
        raise CapsuleError(f"no log in {folder}", hint="check the path, or wait until the rank has issued a collective")
    log = RankLog(reader.rank, reader.pid, reader.wall_offset_ns)
    fold(log, events)
    if reader.damage is not None:
        raise reader.damage
    return log


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


def fold(log: RankLog, events: list[Event]) -> None:
    """Adds newly polled events to a log held in memory."""
    position = (
        {c.record_id: i for i, c in enumerate(log.collectives)}
        if any(isinstance(e, Completion | Waited) for e in events)
        else {}
    )
    for event in events:
        match event:
            case Collective():
                position[event.record_id] = len(log.collectives)
                log.collectives.append(event)
            case Completion():
                index = position.get(event.collective.record_id)
                if index is not None:  # its wait may have been told before
                    known = log.collectives[index]
                    log.collectives[index] = replace(
                        event.collective,
                        time_waited_ns=known.time_waited_ns,
                        waiting_thread_id=known.waiting_thread_id,
                    )
            case Waited():
                index = position.get(event.record_id)
                if index is not None:
                    log.collectives[index] = replace(
                        log.collectives[index], time_waited_ns=event.time_ns, waiting_thread_id=event.thread_id
                    )
            case StepMark():
                log.steps.append(event)
            case Note():
                log.notes.append(event)
            case Group():
                log.groups[event.name] = event


def read_payload(folder: Path, ref: PayloadRef) -> bytes:
    """The bytes one collective received. `CapsuleError` where the segment is gone or too short."""
    path = folder / fmt.payload_segment(ref.segment)
    try:
        with open_plain(path) as file:
            end = file.seek(0, 2)
            if ref.offset + ref.size_bytes <= end:
                file.seek(ref.offset)
                return file.read(ref.size_bytes)
    except FileNotFoundError:
        raise CapsuleError(
            f"payload segment {path.name} is not in {folder}",
            hint="record with a larger --window: this window no longer covers it",
        ) from None
    except OSError as error:
        raise CapsuleError(
            f"{path} cannot be read: {error.strerror}", hint="record or fetch it again: the log is damaged"
        ) from error
    raise CapsuleError(
        f"{path} ends at byte {end}, expected {ref.offset + ref.size_bytes}",
        hint="read another rank's log: this file is truncated",
    )


def iter_logs(run_ranks: Path) -> Iterator[Path]:
    """The log folders below a run's `ranks/`, in rank order, later attempts last. Other folders are none of ours."""
    found = [path for path in run_ranks.iterdir() if ATTEMPT.fullmatch(path.name) and path.is_dir()]
    yield from sorted(found, key=lambda path: [int(number) for number in path.name.split(".")])
