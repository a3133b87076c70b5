"""A rank's whole log as columns: a million collectives in about a second, for whoever looks at all of them.

Everything that is one value a collective is an array, in the order of issue; what one of them is in full (tensors,
frames) is decoded when asked for, by `collective`.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule import log_format as fmt
from prismdbg.capsule.log_events import Note, StepMark
from prismdbg.capsule.log_reader import DAMAGED, event_segments, read_header
from prismdbg.capsule.log_records import RecordDecoder
from prismdbg.errors import CapsuleError
from prismdbg.log import segment as seg
from prismdbg.log.segment import Ints
from prismdbg.model.collective import Collective, Frame, Group
from prismdbg.model.moment import Moment

NOT_ENDED = -1

Bools = NDArray[np.bool_]
_NONE = np.zeros(0, dtype=np.int64)
# fields of the log's records by their place in the format
_ISSUE = {
    "record_id": 0,
    "begun_ns": 1,
    "fingerprint": 2,
    "thread": 3,
    "seq": 4,
    "step": 5,
    "nth": 6,
    "op": 7,
    "group": 8,
    "stack": 9,
    "root": 11,
    "tag": 12,
    "reduce_op": 14,
    "flags": 15,
    "inputs": 17,
    "outputs": 18,
}
_COMPLETE = {"record_id": 0, "ended_ns": 1, "payload_segment": 4, "source_rank": 5, "status": 6, "flags": 7}
_WAIT = {"record_id": 0, "waited_ns": 1, "waiting_thread": 2}
_SEGMENTS_HELD = 8  # of 4 MiB
_TRIES = 3


@dataclass(slots=True, kw_only=True)
class LogColumns:
    """`texts[op[i]]` is the operator of row i. Times are the log's own; `ended_ns` is NOT_ENDED where it did not.

    synthesized: what was received is synthesized, so that nothing may be concluded from its values. waited_ns: when
    `waiting_thread` began to wait for it, NOT_ENDED where that is not known. payload_segment: of what was received, if
    `has_payload`, else -1. reduce_op: by its number in the log's format. tensors: equal where the tensors of two
    collectives are. fingerprint: where `has_fingerprint`, as 64 bits with a sign. rank: -1 where no header is written.
    """

    rank: int
    pid: int
    wall_offset_ns: int
    record_id: Ints
    step: Ints
    nth: Ints
    op: Ints
    group: Ints
    seq: Ints
    size_bytes: Ints
    begun_ns: Ints
    ended_ns: Ints
    waited_ns: Ints
    waiting_thread: Ints
    root: Ints
    tag: Ints
    thread: Ints
    stack: Ints
    fingerprint: Ints
    reduce_op: Ints
    tensors: Ints
    source_rank: Ints
    payload_segment: Ints
    has_fingerprint: Bools
    is_async: Bools
    is_p2p: Bools
    sent_nonfinite: Bools
    received_nonfinite: Bools
    failed: Bools
    has_payload: Bools
    synthesized: Bools
    steps: list[StepMark]
    groups: dict[str, Group]
    notes: list[Note]
    damage: CapsuleError | None
    records: RecordDecoder = field(repr=False)
    bodies: Bodies = field(repr=False)

    def __len__(self) -> int:
        return len(self.record_id)

    def moment(self, row: int) -> Moment:
        return Moment(int(self.step[row]), int(self.nth[row]))

    def row_at(self, moment: Moment) -> int:
        """The first row at or after `moment`; the number of rows where there is none."""
        first = int(np.searchsorted(self.step, moment.step))
        beyond = int(np.searchsorted(self.step, moment.step + 1))
        return first + int(np.searchsorted(self.nth[first:beyond], moment.collective))

    @property
    def texts(self) -> dict[int, str]:
        return self.records.texts

    def frames(self, stack: int) -> tuple[Frame, ...]:
        """Innermost first; empty where the log does not have the stack."""
        return self.records.stacks.get(stack, ())

    @property
    def last_moment(self) -> Moment:
        return self.moment(len(self) - 1) if len(self) else Moment(0)

    def before(self, end_ns: int) -> LogColumns:
        """As the log was at a time of its own clock."""
        rows = np.flatnonzero(self.begun_ns < end_ns)
        taken = {name: getattr(self, name)[rows] for name in _ARRAYS}
        ended = (taken["ended_ns"] != NOT_ENDED) & (taken["ended_ns"] < end_ns)
        taken["ended_ns"] = np.where(ended, taken["ended_ns"], NOT_ENDED)
        for name in ("failed", "received_nonfinite", "synthesized", "has_payload"):
            taken[name] = taken[name] & ended
        steps = [mark for mark in self.steps if mark.time_ns < end_ns]
        notes = [note for note in self.notes if note.time_ns < end_ns]
        return replace(self, **taken, steps=steps, notes=notes, bodies=self.bodies.of_rows(rows))

    def collective(self, row: int) -> Collective:
        """In full. `CapsuleError` where the row's records are damaged, or their segment is gone meanwhile."""
        wait = (int(self.waited_ns[row]), int(self.waiting_thread[row])) if self.waited_ns[row] >= 0 else None
        issue, completion = self.bodies.of(row)
        if self.ended_ns[row] == NOT_ENDED:
            completion = None
        try:
            return self.records.collective(issue, completion, wait)
        except (ValueError, struct.error) as error:
            raise CapsuleError(f"{self.bodies.place(row)} is damaged: {error}", hint=DAMAGED) from error


@dataclass(slots=True, kw_only=True)
class Bodies:
    """Where the two records of each row lie: segment, as a position in `paths`, and slot; slot -1 where there is no
    second. They are read again when asked for: a log may be larger than memory."""

    paths: list[Path]
    issue_segment: Ints
    issue_slot: Ints
    complete_segment: Ints
    complete_slot: Ints
    _held: OrderedDict[int, seg.Words] = field(default_factory=OrderedDict)

    def of(self, row: int) -> tuple[bytes, bytes | None]:
        issue = self._body(int(self.issue_segment[row]), int(self.issue_slot[row]))
        slot = int(self.complete_slot[row])
        return issue, self._body(int(self.complete_segment[row]), slot) if slot >= 0 else None

    def of_rows(self, rows: Ints) -> Bodies:
        return Bodies(
            paths=self.paths,
            issue_segment=self.issue_segment[rows],
            issue_slot=self.issue_slot[rows],
            complete_segment=self.complete_segment[rows],
            complete_slot=self.complete_slot[rows],
        )

    def place(self, row: int) -> str:
        return f"{self.paths[int(self.issue_segment[row])]} at offset {int(self.issue_slot[row]) * seg.SLOT_BYTES}"

    def _body(self, segment: int, slot: int) -> bytes:
        words = self._words(segment)
        if slot >= len(words):
            raise CapsuleError(f"{self.paths[segment]} was truncated while it was read", hint="read another rank's log")
        return seg.body(words, slot)

    def _words(self, segment: int) -> seg.Words:
        if segment not in self._held:
            self._held[segment] = _read(self.paths[segment])
            if len(self._held) > _SEGMENTS_HELD:
                self._held.popitem(last=False)
        return self._held[segment]


_ARRAYS = tuple(each.name for each in fields(LogColumns) if each.type in ("Ints", "Bools"))


def _read(path: Path) -> seg.Words:
    try:
        return seg.read_words(path)
    except OSError as error:
        raise CapsuleError(f"{path} cannot be read: {error.strerror}", hint=DAMAGED) from error


def read_columns(folder: Path) -> LogColumns:
    """`CapsuleError` where there is no log; `damage` says where a damaged one ends early."""
    for left in reversed(range(_TRIES)):
        try:
            return _read_segments(folder)
        except CapsuleError as error:  # the supervisor dropped a segment that was there a moment ago
            if not left or not isinstance(error.__cause__, FileNotFoundError):
                raise
    raise AssertionError("the last try returns or raises")


def _read_segments(folder: Path) -> LogColumns:
    segments = event_segments(folder)
    if not segments:
        raise CapsuleError(f"no log in {folder}", hint="check the path, or wait until the rank has issued a collective")
    reading = _Reading()
    for number, path in segments:
        if not reading.add(number, path):
            break
    return reading.columns()


def read_whole(folder: Path) -> LogColumns:
    """`CapsuleError` also where it is damaged, or nothing is written yet."""
    columns = read_columns(folder)
    if columns.damage is not None:
        raise columns.damage
    if columns.rank < 0:
        raise CapsuleError(f"no log in {folder}", hint="check the path, or wait until the rank has issued a collective")
    return columns


class _Reading:
    """Collects the segments' columns; joined once at the end."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.rank, self.pid, self.wall_offset_ns = -1, 0, 0
        self.issues: dict[str, list[Ints]] = {}
        self.ends: dict[str, list[Ints]] = {}
        self.waits: dict[str, list[Ints]] = {}
        self.records = RecordDecoder()
        self.steps: list[StepMark] = []
        self.groups: dict[str, Group] = {}
        self.notes: list[Note] = []
        self.damage: CapsuleError | None = None

    def add(self, number: int, path: Path) -> bool:
        """False where the log ends with this segment."""
        words = _read(path)
        if not len(words) or not self._header(words, number, path):
            return False
        places = seg.find_records(words, path)
        self.damage = places.damage
        cut = self._others(words, places.others, path)
        at = len(self.paths)
        self.paths.append(path)
        self._add(self.issues, words, places.issues[places.issues < cut], fmt.ISSUE, _ISSUE, at)
        self._add(self.ends, words, places.completions[places.completions < cut], fmt.COMPLETE, _COMPLETE, at)
        self._add(self.waits, words, places.waits[places.waits < cut], fmt.WAIT, _WAIT, at)
        return places.closed and self.damage is None

    def _header(self, words: seg.Words, number: int, path: Path) -> bool:
        header = read_header(words[: fmt.HEADER.size // seg.SLOT_BYTES].tobytes(), number, path)
        if header is None:
            return False
        self.rank, self.pid, self.wall_offset_ns = header
        return True

    def _others(self, words: seg.Words, others: list[tuple[int, int]], path: Path) -> int:
        """The slot up to which the segment can be read."""
        for kind, slot in others:
            try:
                self._other(kind, seg.body(words, slot))
            except (CapsuleError, ValueError, struct.error) as error:
                self.damage = CapsuleError(f"{path} is damaged at offset {slot * seg.SLOT_BYTES}: {error}")
                return slot
        return len(words)

    def _other(self, kind: int, body: bytes) -> None:
        match kind:
            case fmt.Kind.TEXT:
                self.records.text(body)
            case fmt.Kind.STACK:
                self.records.stack(body)
            case fmt.Kind.STEP:
                self.steps.append(self.records.step(body))
            case fmt.Kind.NOTE:
                self.notes.append(self.records.note(body))
            case fmt.Kind.GROUP:
                group = self.records.group(body)
                self.groups[group.name] = group

    @staticmethod
    def _add(
        into: dict[str, list[Ints]],
        words: seg.Words,
        slots: Ints,
        layout: struct.Struct,
        wanted: dict[str, int],
        segment: int,
    ) -> None:
        if not len(slots):
            return
        values = {name: seg.field(words, slots, layout, number) for name, number in wanted.items()}
        if layout is fmt.ISSUE:
            values["size_bytes"] = seg.tensor_bytes(words, slots, values.pop("inputs"), values.pop("outputs"))
            values["tensors"] = seg.tensors_key(words, slots)
        values |= {"segment": np.full(len(slots), segment, dtype=np.int64), "slot": slots}
        for name, column in values.items():
            into.setdefault(name, []).append(column)

    def columns(self) -> LogColumns:
        issue = {name: np.concatenate(parts) for name, parts in self.issues.items()}
        record_id = issue.get("record_id", _NONE)
        if len(record_id) > 1 and not (np.diff(record_id) > 0).all():
            order = np.argsort(record_id, kind="stable")
            issue = {name: column[order] for name, column in issue.items()}
            record_id = issue["record_id"]
        absent = {
            "ended_ns": NOT_ENDED,
            "payload_segment": -1,
            "source_rank": -1,
            "status": 0,
            "flags": 0,
            "segment": 0,
            "slot": -1,
        }
        end = _joined(record_id, self.ends, absent)
        waits = _joined(record_id, self.waits, {"waited_ns": NOT_ENDED, "waiting_thread": 0})
        flags, end_flags = issue.get("flags", _NONE), end["flags"]
        has_payload = (end_flags & fmt.CompleteFlag.PAYLOAD) > 0
        named = ("record_id", "step", "nth", "op", "group", "seq", "size_bytes", "begun_ns", "root", "tag")
        others = ("thread", "stack", "fingerprint", "reduce_op", "tensors")
        return LogColumns(
            rank=self.rank,
            pid=self.pid,
            wall_offset_ns=self.wall_offset_ns,
            **{name: issue.get(name, _NONE) for name in (*named, *others)},
            ended_ns=end["ended_ns"],
            **waits,
            source_rank=end["source_rank"],
            payload_segment=np.where(has_payload, end["payload_segment"], -1),
            has_fingerprint=(flags & fmt.IssueFlag.HAS_FINGERPRINT) > 0,
            is_async=(flags & fmt.IssueFlag.ASYNC) > 0,
            is_p2p=(flags & fmt.IssueFlag.P2P) > 0,
            sent_nonfinite=(flags & fmt.IssueFlag.SENT_NONFINITE) > 0,
            received_nonfinite=(end_flags & fmt.CompleteFlag.RECEIVED_NONFINITE) > 0,
            failed=end["status"] == fmt.Status.FAILED,
            has_payload=has_payload,
            synthesized=(end_flags & fmt.CompleteFlag.SYNTHESIZED) > 0,
            steps=self.steps,
            groups=self.groups,
            notes=self.notes,
            damage=self.damage,
            records=self.records,
            bodies=Bodies(
                paths=self.paths,
                issue_segment=issue.get("segment", _NONE),
                issue_slot=issue.get("slot", _NONE),
                complete_segment=end["segment"],
                complete_slot=end["slot"],
            ),
        )


def _joined(record_id: Ints, told: dict[str, list[Ints]], absent: dict[str, int]) -> dict[str, Ints]:
    """What was told of records later, in the order of the issues; `absent` where nothing was."""
    joined = {name: np.full(len(record_id), value, dtype=np.int64) for name, value in absent.items()}
    if not told or not len(record_id):
        return joined
    columns = {name: np.concatenate(parts) for name, parts in told.items()}
    at = np.minimum(np.searchsorted(record_id, columns["record_id"]), len(record_id) - 1)
    known = record_id[at] == columns["record_id"]
    for name, column in joined.items():
        column[at[known]] = columns[name][known]
    return joined


def kinds_of(*columns: Ints) -> tuple[Ints, Ints]:
    """Rows that are equal in all of these columns are of one kind: for each kind one row of it, for each row its kind.
    Several times as fast as numpy's `unique` over an axis."""
    kind = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, of = np.unique(column, return_inverse=True)
        kind = np.unique(kind * len(values) + of, return_inverse=True)[1]
    _, rows, of = np.unique(kind, return_index=True, return_inverse=True)
    return rows, of
