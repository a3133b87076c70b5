"""A rank's whole log as columns: a million collectives in about a second, for whoever looks at all of them.

Everything that is one value a collective is an array, in the order of issue; what one of them is in full (tensors,
frames) is decoded when asked for, by `collective`.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.events import Note, StepMark
from prismdbg.capsule.log.notes import PATH_NOTES
from prismdbg.capsule.log.part_table import FIRST_SLOT, SLOT_BYTES
from prismdbg.capsule.log.reader import DAMAGED, event_segments, read_header
from prismdbg.capsule.log.records import RecordDecoder
from prismdbg.errors import CapsuleError
from prismdbg.log import kept_marks, step_rows
from prismdbg.log import segment as seg
from prismdbg.log.kept_marks import KeptMarks
from prismdbg.log.log_parts import LogPart, Numbered, Words, all_parts, newest_first, parts_of, whole_file
from prismdbg.log.nonfinite_runs import NonfiniteCall, NonfiniteRuns
from prismdbg.log.segment import Ints
from prismdbg.log.summary import parts, summarized
from prismdbg.model.collective import Collective, Frame, Group
from prismdbg.model.frame import infers_shapes
from prismdbg.model.moment import Moment

T = TypeVar("T")
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
    "device": 10,
    "root": 11,
    "tag": 12,
    "reduce_op": 14,
    "flags": 15,
    "inputs": 17,
    "outputs": 18,
}
_COMPLETE = {"record_id": 0, "ended_ns": 1, "payload_segment": 4, "source_rank": 5, "status": 6, "flags": 7}
_DECODED = frozenset(
    map(int, (fmt.Kind.TEXT, fmt.Kind.STACK, fmt.Kind.GROUP, fmt.Kind.STEP, fmt.Kind.NOTE, fmt.Kind.MARK))
)
_SENT = {"record_id": 0, "flags": 7, "fingerprint": 10}
_WAIT = {"record_id": 0, "waited_ns": 1, "waiting_thread": 2}
LAST_BYTES = fmt.EVENT_SEGMENT_BYTES + 1  # a whole segment at least: the newest one may have just begun
_HELD_BYTES = 8 * fmt.EVENT_SEGMENT_BYTES  # of each log, of segments whose rows are decoded
_SINGLE_READS = 64  # of a segment, before it is read as a whole and held
_TRIES = 3


@dataclass(slots=True, kw_only=True)
class LogColumns:
    """`texts[op[i]]` is the operator of row i. Times are the log's own; `ended_ns` is NOT_ENDED where it did not.

    synthesized: what was received is synthesized, so that nothing may be concluded from its values. waited_ns: when
    `waiting_thread` began to wait for it, NOT_ENDED where that is not known. payload_segment: of what was received, if
    `has_payload`, else -1. reduce_op: by its number in the log's format. tensors: equal where the tensors of two
    collectives are. first_type: the number of the element type of the first tensor, -1 where there is none.
    fingerprint: where `has_fingerprint`, as 64 bits with a sign. on_device: its tensors are not in the host's
    memory: it is issued and left, so that its time is no wait; or it is a barrier of a device, which a host enters
    ahead of its device. sent_late: what it sends is known from its end. rank: -1 where no header is written.
    wall_offset_ns: as when the log began, whoever has set the machine's clock since. summary: of the steps before,
    where the log begins later, or was read from later on: `read_from_later`. whole_from: the record from which on
    all are here; of those before only what is open, and the first with NaN or Inf of each run of them.
    earlier_marks: of steps before `steps`; between two of them, none was skipped by a gradient scaler.
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
    first_type: Ints
    source_rank: Ints
    payload_segment: Ints
    has_fingerprint: Bools
    is_async: Bools
    is_p2p: Bools
    on_device: Bools
    sent_late: Bools
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
    summary: step_rows.Rows = field(default_factory=lambda: step_rows.NO_ROWS, repr=False)
    read_from_later: bool = False
    whole_from: int = 0
    earlier_marks: list[StepMark] = field(default_factory=list)

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
    def marks(self) -> list[StepMark]:
        """Of all steps that are here, and of those of before that a summary or a preface keeps."""
        return [*self.earlier_marks, *self.steps]

    @property
    def nonfinite(self) -> Bools:
        """Calls that sent or received NaN or Inf, but for those with which pipelining learns shapes."""
        found = self.sent_nonfinite | self.received_nonfinite
        stacks = np.unique(self.stack[found]).tolist()
        learns = [stack for stack in stacks if infers_shapes(self.frames(stack))]
        return found & ~np.isin(self.stack, learns) if learns else found

    @property
    def last_moment(self) -> Moment:
        return self.moment(len(self) - 1) if len(self) else Moment(0)

    @property
    def first_step_read(self) -> int:
        """From which on the collectives are there one by one; of this step itself perhaps not all."""
        from_summary = 0 if self.read_from_later else -1
        is_read = (self.bodies.issue_segment > from_summary) & (self.record_id >= self.whole_from)
        return int(self.step[is_read].min(initial=np.iinfo(np.int64).max))

    @property
    def issued(self) -> int:
        """How many collectives the rank has issued, here or not."""
        return max(int(self.record_id[-1]) + 1 if len(self) else 0, self._summarized)

    @property
    def unknown(self) -> int:
        """How many of them are neither here nor in the summary."""
        here = len(self) - int(np.searchsorted(self.record_id, self._summarized))
        return self.issued - self._summarized - here

    @property
    def _summarized(self) -> int:
        """All of them come before the first that is read."""
        return int(self.summary["collectives"].sum())

    def before(self, end_ns: int) -> LogColumns:
        """As the log was at a time of its own clock."""
        left = self.only(np.flatnonzero(self.begun_ns < end_ns))
        ended = (left.ended_ns != NOT_ENDED) & (left.ended_ns < end_ns)
        taken = {name: getattr(left, name) & ended for name in _OF_COMPLETED}
        known = ended | ~left.sent_late
        taken |= {name: getattr(left, name) & known for name in _OF_SENT}
        fingerprint = np.where(known, left.fingerprint, 0)
        ended_ns = np.where(ended, left.ended_ns, NOT_ENDED)
        steps = [mark for mark in self.steps if mark.time_ns < end_ns]
        earlier = [mark for mark in self.earlier_marks if mark.time_ns < end_ns]
        notes = [note for note in self.notes if note.time_ns < end_ns]
        summary = self.summary[self.summary["begun_ns"] < end_ns]
        left = replace(left, **taken, ended_ns=ended_ns, fingerprint=fingerprint)
        return replace(left, steps=steps, earlier_marks=earlier, notes=notes, summary=summary)

    def newest(self, count: int) -> LogColumns:
        """With so many of its last rows, and a summary of what is before, as a summary of a segment is: of one of many
        ranks. Of steps there are so many of the last marks, and of notes none of the files that the rank used."""
        earlier = kept_marks.around_skipped([*self.earlier_marks, *self.steps[:-count]])
        notes = [note for note in self.notes if note.kind not in PATH_NOTES]
        told: dict[str, Any] = {"steps": self.steps[-count:], "earlier_marks": earlier, "notes": notes}
        if len(self) <= count:
            return replace(self, summary=step_rows.of_many(self.summary), **told)
        whole_from = int(self.record_id[-count])
        before = self.record_id < whole_from
        stays = ~before | (self.ended_ns == NOT_ENDED)
        rows = np.flatnonzero(before & (self.record_id >= self._summarized))
        summary = np.concatenate([self.summary, self._rows_of_steps(rows)])
        stays |= self._is_single & self.nonfinite
        stays[self._first_of_runs(np.flatnonzero(before & self.nonfinite), summary)] = True
        summary = step_rows.of_many(summary)
        return replace(self.only(np.flatnonzero(stays)), summary=summary, whole_from=whole_from, **told)

    def _first_of_runs(self, rows: Ints, of_steps: step_rows.Rows) -> Ints:
        """Of rows with NaN or Inf."""
        kept = KeptMarks()
        kept.note((mark.step, mark.source is fmt.StepSource.SKIPPED_BY_SCALER) for mark in self.marks)
        calls, runs = [], NonfiniteRuns()
        for has_sent, has, time_ns in (
            (True, self.sent_nonfinite, self.begun_ns),
            (False, self.received_nonfinite, self.ended_ns),
        ):
            some = rows[has[rows]]
            some = some[np.lexsort((time_ns[some], self.step[some]))]
            first = some[np.flatnonzero(np.diff(self.step[some], prepend=-1))]  # of each step
            for row in first.tolist():
                step, record_id = int(self.step[row]), int(self.record_id[row])
                calls.append(NonfiniteCall(step, int(time_ns[row]), record_id, has_sent))
        found = {*runs.of_part(calls, of_steps, kept.skipped, all_stay=False)} - {*runs.no_longer()}
        return np.flatnonzero(np.isin(self.record_id, list(found)))

    def _rows_of_steps(self, rows: Ints) -> step_rows.Rows:
        ended = np.where(self.ended_ns[rows] == NOT_ENDED, -1, self.ended_ns[rows])
        return step_rows.rows_of_calls(
            step=self.step[rows],
            begun=self.begun_ns[rows],
            ended=ended,
            size_bytes=self.size_bytes[rows],
            nonfinite=self.sent_nonfinite[rows] | self.received_nonfinite[rows],
            failed=self.failed[rows],
            stack=self.stack[rows],
            payload=self.payload_segment[rows],
            nth=self.nth[rows],
        )

    def only(self, rows: Ints) -> LogColumns:
        """With these of its rows; all else is as it was."""
        taken = {name: getattr(self, name)[rows] for name in _ARRAYS}
        return replace(self, **taken, bodies=self.bodies.of_rows(rows))

    def without_single_ones(self) -> LogColumns:
        """From where on every collective is here: without those few of before that a summary or a preface keeps."""
        is_single = self._is_single
        return self.only(np.flatnonzero(~is_single)) if is_single.any() else self

    @property
    def _is_single(self) -> Bools:
        return np.isin(self.bodies.issue_segment, list(self.bodies.kept)) | (self.record_id < self.whole_from)

    @property
    def first_of_whole(self) -> int:
        """The row from which on every collective is here; the first where there is none, or no row."""
        return int(self._is_single.argmin()) if len(self) else 0

    def collective(self, row: int) -> Collective:
        """In full. `CapsuleError` where the row's records are damaged, or their segment is gone meanwhile."""
        wait = (int(self.waited_ns[row]), int(self.waiting_thread[row])) if self.waited_ns[row] >= 0 else None
        issue, completion = self.bodies.of(row)
        if self.ended_ns[row] == NOT_ENDED:
            completion = None
        try:
            return self.records.collective(issue, completion, wait)
        except (ValueError, struct.error) as error:
            raise CapsuleError(f"{self.bodies.damaged(row)}: {error}", hint=DAMAGED) from error


@dataclass(slots=True, kw_only=True)
class Bodies:
    """Where the two records of each row lie: segment, as a position in `parts`, and slot; slot -1 where there is no
    second. They are read again when asked for: a log may be larger than memory. `kept`: of what may have another
    content by then."""

    parts: list[LogPart]
    issue_segment: Ints
    issue_slot: Ints
    complete_segment: Ints
    complete_slot: Ints
    kept: dict[int, Words] = field(default_factory=dict)
    _held: OrderedDict[int, Words] = field(default_factory=OrderedDict)
    _asked: dict[int, int] = field(default_factory=dict)

    def of(self, row: int) -> tuple[bytes, bytes | None]:
        issue = self._body(int(self.issue_segment[row]), int(self.issue_slot[row]))
        slot = int(self.complete_slot[row])
        return issue, self._body(int(self.complete_segment[row]), slot) if slot >= 0 else None

    def of_rows(self, rows: Ints) -> Bodies:
        return Bodies(
            parts=self.parts,
            issue_segment=self.issue_segment[rows],
            issue_slot=self.issue_slot[rows],
            complete_segment=self.complete_segment[rows],
            complete_slot=self.complete_slot[rows],
            kept=self.kept,
        )

    def fields(self, rows: Ints, layout: struct.Struct, numbers: Sequence[int]) -> list[Ints]:
        """For each of `numbers` that field of the issues of these rows, or of their completions, which must be there:
        `layout` is one of the format. One segment after the other is read again."""
        of_issues = layout is fmt.ISSUE
        segments = (self.issue_segment if of_issues else self.complete_segment)[rows]
        slots = (self.issue_slot if of_issues else self.complete_slot)[rows]
        columns = [np.zeros(len(rows), dtype=np.int64) for _ in numbers]
        order = np.argsort(segments, kind="stable")
        present, begins = np.unique(segments[order], return_index=True)
        for segment, here in zip(present.tolist(), np.split(order, begins[1:]), strict=False):
            words = self._words(segment, int(slots[here].max()) + (fmt.RECORD.size + layout.size) // SLOT_BYTES)
            for column, number in zip(columns, numbers, strict=True):
                column[here] = seg.field(words, slots[here], layout, number)
        return columns

    def damaged(self, row: int) -> str:
        """What an error says of a row that cannot be decoded."""
        segment = int(self.issue_segment[row])
        part, offset = self.parts[segment], self.parts[segment].offset(int(self.issue_slot[row]))
        return f"{part.path} is damaged" if segment in self.kept else f"{part.path} is damaged at offset {offset}"

    def _body(self, segment: int, slot: int) -> bytes:
        if segment not in self.kept and segment not in self._held:
            self._asked[segment] = self._asked.get(segment, 0) + 1
            if (
                self._asked[segment] <= _SINGLE_READS
            ):  # of each of a thousand ranks one: no memory has all their segments
                part = self.parts[segment]
                return _readable(part.path, lambda: part.body(slot))
        return seg.body(self._words(segment, slot + 1), slot)

    def _words(self, segment: int, wanted: int) -> Words:
        """At least as many as are `wanted`."""
        words = self.kept[segment] if segment in self.kept else self._read_once(segment)
        if wanted > len(words):
            raise CapsuleError(
                f"{self.parts[segment].path} was truncated while it was read", hint="read another rank's log"
            )
        return words

    def _read_once(self, segment: int) -> Words:
        if segment not in self._held:
            self._held[segment] = _words(self.parts[segment])
            while len(self._held) > 1 and sum(words.nbytes for words in self._held.values()) > _HELD_BYTES:
                self._held.popitem(last=False)
        return self._held[segment]


_OF_SENT = ("sent_nonfinite", "has_fingerprint")
_OF_COMPLETED = ("failed", "received_nonfinite", "synthesized", "has_payload")
_ARRAYS = tuple(each.name for each in fields(LogColumns) if each.type in ("Ints", "Bools"))


def _words(part: LogPart) -> Words:
    return _readable(part.path, part.words)


def _readable(path: Path, look: Callable[[], T]) -> T:
    """What `look` gives of a file of the log, which may be gone meanwhile, or a link that leads nowhere."""
    try:
        return look()
    except OSError as error:
        raise CapsuleError(f"{error.filename or path} cannot be read: {error.strerror}", hint=DAMAGED) from error


def read_columns(folder: Path, newest_bytes: int | None = None, newest_rows: int | None = None) -> LogColumns:
    """`CapsuleError` where there is no log; `damage` says where a damaged one ends early.

    newest_bytes: read only so much of its end, and the summary in place of what is before, as far as there is one.
    newest_rows: so many of the last collectives, in place of bytes.
    """
    if newest_rows is None:
        return while_folded(lambda: _read_segments(folder, newest_bytes))
    return while_folded(lambda: _read_newest(folder, newest_rows))


def _read_newest(folder: Path, rows: int) -> LogColumns:
    """Mostly the newest segment has them."""
    columns = _read_segments(folder, 1)
    if columns.read_from_later and len(columns) < rows:
        columns = _read_segments(folder, LAST_BYTES)
    return columns.newest(rows)


def while_folded(read: Callable[[], T]) -> T:
    """What `read` gives; it is called again where a segment is gone that was there a moment ago."""
    for left in reversed(range(_TRIES)):
        try:
            return read()
        except CapsuleError as error:
            if not left or not isinstance(error.__cause__, FileNotFoundError):
                raise
    raise AssertionError("the last try returns or raises")


def _read_segments(folder: Path, newest_bytes: int | None) -> LogColumns:
    files = _files(folder)
    reading = _Reading()
    if newest_bytes is None:
        parts = _readable(folder, lambda: all_parts(files))
    else:
        parts = newest_parts(files, newest_bytes, summarized(folder, files))
    if parts[0].number > files[0][0] and not reading.add_summary(folder / fmt.SUMMARY, parts[0].number):
        reading, parts = _Reading(), _readable(folder, lambda: all_parts(files))
    for part in parts:
        if not reading.add(part):
            break
    return reading.columns()


def read_near(folder: Path, steps: range) -> LogColumns:
    """All of a log but the collectives of other steps, which may not fit in memory: of each part before its end the
    first and the last one stay, and those that failed. Errors as of `read_whole`."""
    return _undamaged(while_folded(lambda: _read_near(folder, steps)), folder)


def _read_near(folder: Path, steps: range) -> LogColumns:
    files = _files(folder)
    reading = _Reading()
    end = newest_parts(files, LAST_BYTES, files[-1][0])[0].number
    for part in _readable(folder, lambda: all_parts(files)):
        if not reading.add(part):
            break
        if part.number < end:
            reading.thin(steps)
    return reading.columns()


def read_beginning(folder: Path) -> LogColumns:
    """What the first segment says. `CapsuleError` where there is no log, or it is damaged there."""
    number, path = _files(folder)[0]
    reading = _Reading()
    reading.add(_readable(path, lambda: parts_of(number, path))[0])
    return _undamaged(reading.columns(), folder)


def _files(folder: Path) -> list[Numbered]:
    files = event_segments(folder)
    if not files:
        raise _no_log(folder)
    return files


def _no_log(folder: Path) -> CapsuleError:
    return CapsuleError(f"no log in {folder}", hint="check the path, or wait until the rank has issued a collective")


def newest_parts(files: Sequence[Numbered], newest_bytes: int, covered: int) -> list[LogPart]:
    """Which segments are read, in order. The newest is, and all that the summary does not cover; at most one as long as
    a rank makes it is more than `newest_bytes`, never a longer one."""
    return _readable(files[-1][1].parent, lambda: _newest_parts(files, newest_bytes, covered))


def _newest_parts(files: Sequence[Numbered], left: int, covered: int) -> list[LogPart]:
    chosen: list[LogPart] = []
    for part in newest_first(files):
        size_bytes = part.size_bytes()
        if chosen and size_bytes > max(left, fmt.EVENT_SEGMENT_BYTES) and chosen[-1].number <= covered + 1:
            break
        chosen.append(part)
        left -= size_bytes
        if left <= 0 and part.number <= covered + 1:
            break
    return chosen[::-1]


def read_whole(folder: Path, newest_bytes: int | None = None) -> LogColumns:
    """`CapsuleError` also where it is damaged, or nothing is written yet."""
    return _undamaged(read_columns(folder, newest_bytes), folder)


def _undamaged(columns: LogColumns, folder: Path) -> LogColumns:
    if columns.damage is not None:
        raise columns.damage
    if columns.rank < 0:
        raise _no_log(folder)
    return columns


class _Reading:
    """Collects the segments' columns; joined once at the end."""

    def __init__(self) -> None:
        self.parts: list[LogPart] = []
        self.rank, self.pid, self.wall_offset_ns = -1, 0, 0
        self.issues: dict[str, list[Ints]] = {}
        self.ends: dict[str, list[Ints]] = {}
        self.waits: dict[str, list[Ints]] = {}
        self.sent: dict[str, list[Ints]] = {}  # by what completions say of it
        self.records = RecordDecoder()
        self.steps: list[StepMark] = []
        self.earlier_marks: list[StepMark] = []
        self.groups: dict[str, Group] = {}
        self.notes: list[Note] = []
        self.rows: list[step_rows.Rows] = [step_rows.NO_ROWS]
        self.kept: dict[int, Words] = {}
        self.read_from_later = False
        self.damage: CapsuleError | None = None

    def add_summary(self, path: Path, before: int) -> bool:
        """Its parts of the segments before this one. False where it is damaged: then this reading is of no use."""
        part = whole_file(path)
        try:
            words = part.words()
            places = seg.find_records(words, part)
            marks = list(parts(words, places.others))
            header = words[:FIRST_SLOT].tobytes()
            begun = read_header(header, fmt.HEADER.unpack(header)[2], path)
        except (OSError, CapsuleError, struct.error):
            return False
        if begun is None or places.damage is not None or not marks:
            return False
        end = next((slot for number, slot in marks if number >= before), len(words))
        others = [(kind, slot) for kind, slot in places.others if slot < end]
        if self._others(words, others, part) < len(words):
            return False
        self._begin(begun)
        self._add_kept(words, places, part, end)
        self.read_from_later = True
        return True

    def add(self, part: LogPart) -> bool:
        """False where the log ends with this segment."""
        try:
            words = _words(part)
        except CapsuleError as error:
            if self.rank < 0 or isinstance(error.__cause__, OSError):
                raise
            self.damage = error  # longer than a segment can be: what came before counts
            return False
        if not len(words) or not self._header(words, part):
            return False
        places = seg.find_records(words, part)
        self.damage = places.damage
        cut = self._others(words, places.others, part)
        is_preface = any(kind == fmt.Kind.SEGMENT for kind, _ in places.others)
        (self._add_kept if is_preface else self._add_records)(words, places, part, cut)
        return places.closed and self.damage is None

    def _add_kept(self, words: Words, places: seg.Places, part: LogPart, cut: int) -> None:
        """Of a summary or a preface, another of which may take its place. Most of it is rows of steps and notes."""
        of_kind = [each[each < cut] for each in (places.issues, places.completions, places.waits)]
        kept, moved = seg.only_records(words, np.concatenate(of_kind))
        issues, completions, waits = np.split(moved, np.cumsum([len(each) for each in of_kind[:-1]]))
        places = replace(places, issues=issues, completions=completions, waits=waits)
        self.kept[len(self.parts)] = kept
        self._add_records(kept, places, part, len(kept))

    def _add_records(self, words: Words, places: seg.Places, part: LogPart, cut: int) -> None:
        at = len(self.parts)
        self.parts.append(part)
        self._add(self.issues, words, places.issues[places.issues < cut], fmt.ISSUE, _ISSUE, at)
        completions = places.completions[places.completions < cut]
        self._add(self.ends, words, completions, fmt.COMPLETE, _COMPLETE, at)
        self._add(self.sent, words, seg.with_sent(words, completions), fmt.COMPLETE_AND_SENT, _SENT, at)
        self._add(self.waits, words, places.waits[places.waits < cut], fmt.WAIT, _WAIT, at)

    def thin(self, steps: range) -> None:
        """Drops collectives of other steps from the segment that was added last, but for its first and its last one,
        and those that failed in it."""
        at = len(self.parts) - 1
        if not _is_of(self.issues, at):
            return
        ids, step = self.issues["record_id"][-1], self.issues["step"][-1]
        stays = (step >= steps.start) & (step < steps.stop)
        stays[[0, -1]] = True
        if _is_of(self.ends, at):
            failed = self.ends["status"][-1] == fmt.Status.FAILED
            stays |= np.isin(ids, self.ends["record_id"][-1][failed])
        for told in (self.issues, self.ends, self.sent, self.waits):
            if _is_of(told, at):
                here = ~np.isin(told["record_id"][-1], ids[~stays])
                for parts in told.values():
                    parts[-1] = parts[-1][here]

    def _header(self, words: Words, part: LogPart) -> bool:
        header = read_header(words[:FIRST_SLOT].tobytes(), part.of_file, part.path)
        if header is None:
            return False
        self._begin(header)
        return True

    def _begin(self, header: tuple[int, int, int]) -> None:
        """Times of all segments are of one clock, and so are those of the other ranks and of the supervisor: the offset
        of the first one counts, which a summary and a preface have, too."""
        if self.rank < 0:
            self.rank, self.pid, self.wall_offset_ns = header

    def _others(self, words: Words, others: list[tuple[int, int]], part: LogPart) -> int:
        """The slot up to which the segment can be read."""
        self.rows.append(step_rows.at(words, others))
        for kind, slot in others:
            if kind not in _DECODED:
                continue
            try:
                self._other(kind, seg.body(words, slot))
            except (CapsuleError, ValueError, struct.error) as error:
                self.damage = CapsuleError(f"{part.path} is damaged at offset {part.offset(slot)}: {error}")
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
            case fmt.Kind.MARK:
                self.earlier_marks.append(self.records.step(body))
            case fmt.Kind.NOTE:
                self.notes.append(self.records.note(body))
            case fmt.Kind.GROUP:
                group = self.records.group(body)
                self.groups[group.name] = group

    @staticmethod
    def _add(
        into: dict[str, list[Ints]],
        words: Words,
        slots: Ints,
        layout: struct.Struct,
        wanted: dict[str, int],
        segment: int,
    ) -> None:
        if not len(slots):
            return
        values = dict(zip(wanted, seg.fields(words, slots, layout, wanted.values()), strict=True))
        if layout is fmt.ISSUE:
            inputs, outputs = values.pop("inputs"), values.pop("outputs")
            values["size_bytes"] = seg.tensor_bytes(words, slots, inputs, outputs)
            values["first_type"] = seg.first_types(words, slots, inputs, outputs)
            values["tensors"] = seg.tensors_key(words, slots)
        values |= {"segment": np.full(len(slots), segment, dtype=np.int64), "slot": slots}
        for name, column in values.items():
            into.setdefault(name, []).append(column)

    def _devices(self) -> list[int]:
        """Numbers of texts other than the CPU's. Only those of devices are looked for among them."""
        return [number for number, text in self.records.texts.items() if text not in ("", "cpu")]

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
        sent = _joined(record_id, self.sent, {"flags": 0, "fingerprint": 0})
        is_late = sent["flags"] > 0
        if is_late.any():
            issue["fingerprint"] = np.where(is_late, sent["fingerprint"], issue["fingerprint"])
        flags, end_flags = issue.get("flags", _NONE), end["flags"]
        has_payload = (end_flags & fmt.CompleteFlag.PAYLOAD) > 0
        named = ("record_id", "step", "nth", "op", "group", "seq", "size_bytes", "begun_ns", "root", "tag")
        others = ("thread", "stack", "fingerprint", "reduce_op", "tensors", "first_type")
        return LogColumns(
            rank=self.rank,
            pid=self.pid,
            wall_offset_ns=self.wall_offset_ns,
            **{name: issue.get(name, _NONE) for name in (*named, *others)},
            ended_ns=end["ended_ns"],
            **waits,
            source_rank=end["source_rank"],
            payload_segment=np.where(has_payload, end["payload_segment"], -1),
            has_fingerprint=is_late | ((flags & fmt.IssueFlag.HAS_FINGERPRINT) > 0),
            is_async=(flags & fmt.IssueFlag.ASYNC) > 0,
            is_p2p=(flags & fmt.IssueFlag.P2P) > 0,
            on_device=np.isin(issue.get("device", _NONE), self._devices()),
            sent_late=is_late | ((end_flags & fmt.CompleteFlag.SENT_NONFINITE) > 0),
            sent_nonfinite=((flags & fmt.IssueFlag.SENT_NONFINITE) > 0)
            | ((end_flags & fmt.CompleteFlag.SENT_NONFINITE) > 0),
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
                parts=self.parts,
                issue_segment=issue.get("segment", _NONE),
                issue_slot=issue.get("slot", _NONE),
                complete_segment=end["segment"],
                complete_slot=end["slot"],
                kept=self.kept,
            ),
            summary=np.concatenate(self.rows),
            read_from_later=self.read_from_later,
            whole_from=0,
            earlier_marks=self.earlier_marks,
        )


def _is_of(told: dict[str, list[Ints]], segment: int) -> bool:
    """Whether the last part is of this segment: of some, nothing is told."""
    return bool(told) and segment in told["segment"][-1][:1]


def _joined(record_id: Ints, told: dict[str, list[Ints]], absent: dict[str, int]) -> dict[str, Ints]:
    """What was told of records later, in the order of the issues; `absent` where nothing was."""
    joined = {name: np.full(len(record_id), value, dtype=np.int64) for name, value in absent.items()}
    if not told or not len(record_id):
        return joined
    columns = {name: np.concatenate(parts) for name, parts in told.items()}
    ids = columns["record_id"]
    rows: Ints | slice = slice(len(ids))
    known: Ints | slice = slice(None)
    if not np.array_equal(record_id[rows], ids):  # they mostly are, where nothing overlaps
        at = np.minimum(np.searchsorted(record_id, ids), len(record_id) - 1)
        known = np.flatnonzero(record_id[at] == ids)
        rows = at[known]
    for name, column in joined.items():
        column[rows] = columns[name][known]
    return joined
