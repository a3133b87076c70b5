"""What stays of a log's segments in short, as a segment of its own: with all that later segments refer to.

Segments define texts, stacks and groups for all that come after them. Those that are dropped leave a preface in place
of the first. Beside the segments lies a summary of all that the rank has filled, dropped or not: who needs only the end
of a log reads it in place of what is before. Both have one part for each segment: its definitions and notes, the
collectives that were not complete, the first that sent NaN or Inf and the first that received some, in each run of
steps with such, one row a step, and the marks of steps around those that a gradient scaler skipped. Of the exceptions
and of the reasons for which collectives failed, which a job may note for ever, the first and the newest stay, and a
traceback of each place.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.notes import MOST_PLACES
from prismdbg.capsule.log.part_table import FIRST_SLOT
from prismdbg.capsule.log.records import RecordDecoder
from prismdbg.capsule.transfer import open_plain
from prismdbg.errors import CapsuleError
from prismdbg.log import kept_marks, step_rows
from prismdbg.log import segment as seg
from prismdbg.log.kept_marks import KeptMarks
from prismdbg.log.log_parts import LogPart, Numbered, Words, log_parts, whole_file
from prismdbg.log.nonfinite_runs import NonfiniteCall, NonfiniteRuns
from prismdbg.log.segment import Ints
from prismdbg.model.collective import Frame
from prismdbg.model.frame import infers_shapes
from prismdbg.model.private_file import private

_KEPT = frozenset(map(int, (fmt.Kind.TEXT, fmt.Kind.STACK, fmt.Kind.GROUP, fmt.Kind.NOTE)))
_SENT, _RECEIVED = int(fmt.IssueFlag.SENT_NONFINITE), int(fmt.CompleteFlag.RECEIVED_NONFINITE)
_SENT_LATER = int(fmt.CompleteFlag.SENT_NONFINITE)
_DEFINED = {int(fmt.Kind.TEXT): RecordDecoder.text, int(fmt.Kind.STACK): RecordDecoder.stack}
_MARKS = frozenset(map(int, (fmt.Kind.STEP, fmt.Kind.MARK)))
# Notes of a kind that a rank writes again and again, with a traceback or without: the first, and as many of the newest.
MOST_ALIKE = 32
_REPEATED = re.compile(rb'\{"kind": ?"(incident|failed)"')
_PLACE = re.compile(rb'"place": ?(\d+)')
_ALL = 1 << 32  # no segment has this number


def preface(segments: Sequence[LogPart]) -> bytes:
    """One segment in place of these; the first may be a preface. `CapsuleError` where one is damaged."""
    digest = Digest()
    for segment in segments:
        digest.add(segment, one_before=_ALL)
    return digest.segment(0)


def preface_of_capsule(folder: Path, segments: Sequence[LogPart], following: int) -> bytes:
    """One segment without steps in place of these, by the summary as far as that covers them. `following`: the number
    of the segment after them."""
    covered = summarized(folder, [*((each.number, each.path) for each in segments), (following, folder)])
    digest = _begun(folder, Digest(with_steps=False), covered, before=following, one_before=_ALL)
    for segment in segments:
        if segment.number > digest.last:
            digest.add(segment, one_before=_ALL)
    return digest.segment(0)


def summarize(folder: Path) -> None:
    """Brings the summary of a log up to the last segment that its rank has filled. A reader finds the old one or the
    new one, whole."""
    segments = log_parts(folder)
    covered = summarized(folder, [(each.number, each.path) for each in segments])
    if all(each.number <= covered for each in segments[:-1]):
        return
    there = next((each.number for each in segments if each.number), 0)  # segment 0 may be a preface
    digest = _begun(folder, Digest(), covered, one_before=there)
    covered = digest.last
    for segment in segments[:-1]:
        if segment.number > digest.last and not digest.add(segment, one_before=there, if_closed=True):
            break
    if digest.last > covered:
        put(folder / fmt.SUMMARY, [digest.segment(digest.last)])


def _begun(folder: Path, digest: Digest, covered: int, *, before: int = _ALL, one_before: int) -> Digest:
    """With what the summary says; as it was where there is none, or it is damaged."""
    if covered < 0:
        return digest
    try:
        digest.add(whole_file(folder / fmt.SUMMARY), before=before, one_before=one_before)
    except (CapsuleError, struct.error):
        return Digest(digest.with_steps)
    return digest


def summarized(folder: Path, segments: Sequence[Numbered]) -> int:
    """The last of a log's segments that its summary covers; -1 where there is no summary, or it lacks something of
    those that were dropped."""
    try:
        with open_plain(folder / fmt.SUMMARY) as file:
            header = file.read(fmt.HEADER.size)
    except OSError:
        return -1
    if len(header) < fmt.HEADER.size or not header.startswith(fmt.MAGIC):
        return -1
    covered = int(fmt.HEADER.unpack(header)[2])
    after_preface = [number for number, _ in segments if number]
    return covered if covered >= min(after_preface, default=0) - 1 else -1


def parts(words: Words, others: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Of a preface or a summary the number of each segment, and the slot at which its part begins."""
    for kind, slot in others:
        if kind == fmt.Kind.SEGMENT:
            yield fmt.SEGMENT.unpack_from(seg.body(words, slot))[0], slot


def put(path: Path, chunks: Iterable[bytes]) -> None:
    """In one step, for whoever reads meanwhile."""
    new = path.with_name(f".{path.name}.new")
    try:
        with open(new, "wb", opener=private) as file:
            file.writelines(chunks)
        new.rename(path)
    except BaseException:  # a full disk does not keep what is of no use
        new.unlink(missing_ok=True)
        raise


@dataclass(slots=True, kw_only=True)
class _Part:
    """Of one segment. `records`: None where one is complete by now, or stays no longer."""

    records: list[bytes | None]
    rows: step_rows.Rows
    marks: list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A collective that may complete later. at: its place among the records of a part."""

    part: int
    at: int
    step: int
    stack: int


@dataclass(slots=True)
class Digest:
    """Takes segments one after another, each a rank's own, a preface or a summary. `last`: up to which."""

    with_steps: bool = True
    last: int = -1
    _header: bytes = b""
    _parts: list[_Part] = field(default_factory=list)
    _open: dict[int, _Open] = field(default_factory=dict)
    _first: set[int] = field(default_factory=set)  # the first collectives with NaN or Inf, of each run of them
    _places: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # part and place of the records of these
    _runs: NonfiniteRuns = field(default_factory=NonfiniteRuns)
    _marks: KeptMarks = field(default_factory=KeptMarks)
    _decoder: RecordDecoder = field(default_factory=RecordDecoder)
    _to_decode: list[bytes] = field(default_factory=list)  # texts and stacks
    _notes: dict[tuple[bytes, bool], list[tuple[int, int]]] = field(default_factory=dict)  # part and place, by kind
    _traced: set[bytes] = field(default_factory=set)  # places of which a traceback stays
    _ever: set[int] = field(default_factory=set)  # the first of all of them
    _first_sent: int = 1 << 64  # no record has this number
    _has_received: bool = False

    def add(self, segment: LogPart, *, before: int = _ALL, one_before: int = 0, if_closed: bool = False) -> bool:
        """Of a preface or a summary only the parts of segments `before` this one count, and those `one_before` this one
        become one part, for nobody reads from within them. `if_closed`: a thread of the rank may still write to one
        that is not; False then, and nothing is added."""
        words = segment.words()
        self._header = self._header or words[:FIRST_SLOT].tobytes()
        places = seg.find_records(words, segment)
        if places.damage is not None:
            raise places.damage
        if if_closed and not places.closed:
            return False
        marks = list(parts(words, places.others))
        if not marks:
            rows = step_rows.rows_of(words, places)
            self._add_part(segment.number, words, places, FIRST_SLOT, len(words), rows, is_digest=False)
            return True
        end = next((slot for of, slot in marks if of >= before), len(words))
        marks = [(of, slot) for of, slot in marks if of < before]
        joined = [of for of, _ in marks if of < one_before]
        starts = [(joined[-1], marks[0][1])] if joined else []
        starts += marks[len(joined) :]
        stops = [*(slot for _, slot in starts), end][1:]
        for (of, start), stop in zip(starts, stops, strict=True):
            others = [(kind, slot) for kind, slot in places.others if start <= slot < stop]
            rows = step_rows.at(words, others)
            self._add_part(of, words, replace(places, others=others), start, stop, rows, is_digest=True)
        return True

    def _add_part(
        self,
        number: int,
        words: Words,
        places: seg.Places,
        start: int,
        end: int,
        rows: step_rows.Rows,
        *,
        is_digest: bool,
    ) -> None:
        issues, completions = (each[(each >= start) & (each < end)] for each in (places.issues, places.completions))
        issued = seg.field(words, issues, fmt.ISSUE, 0)
        done = seg.field(words, completions, fmt.COMPLETE, 0)
        self._to_decode += [seg.record(words, slot) for kind, slot in places.others if kind in _DEFINED]
        marks = self._marks.of_part((kind, seg.body(words, slot)) for kind, slot in places.others if kind in _MARKS)
        self._find_first(words, issues, completions, rows, is_digest=is_digest)
        first = list(self._first)
        stays = ~np.isin(issued, done) | np.isin(issued, first)
        slots = [slot for kind, slot in places.others if kind in _KEPT]
        slots = sorted([*slots, *issues[stays].tolist(), *completions[np.isin(done, first)].tolist()])
        for known in np.intersect1d(list(self._open), done).tolist():
            was = self._open.pop(known)
            if known not in self._first:
                self._parts[was.part].records[was.at] = None
        place = {slot: at for at, slot in enumerate(slots, 1)}
        open_ = issues[stays & ~np.isin(issued, done)]
        for record_id, (step, stack, slot) in _steps_and_stacks(words, open_).items():
            self._open[record_id] = _Open(part=len(self._parts), at=place[slot], step=step, stack=stack)
        for ids, each in ((issued, issues), (done, completions)):
            is_first = np.isin(ids, first)
            for record_id, slot in zip(ids[is_first].tolist(), each[is_first].tolist(), strict=True):
                self._places.setdefault(record_id, []).append((len(self._parts), place[slot]))
        mark = fmt.RECORD.pack(fmt.RECORD.size + fmt.SEGMENT.size, fmt.Kind.SEGMENT, 0) + fmt.SEGMENT.pack(number)
        self.last = number
        records: list[bytes | None] = [mark, *(seg.record(words, slot) for slot in slots)]
        self._parts.append(_Part(records=records, rows=rows, marks=marks))
        self._bound_notes([place[slot] for kind, slot in places.others if kind == fmt.Kind.NOTE])

    def _bound_notes(self, noted: Sequence[int]) -> None:
        """`noted`: the places of the last part's notes."""
        part = len(self._parts) - 1
        for at in noted:
            record = self._parts[part].records[at] or b""
            found = _REPEATED.match(record, fmt.RECORD.size)
            if found is None or self._is_first_traceback(record):
                continue
            alike = self._notes.setdefault((found[1], b'"traceback":' in record), [])
            alike.append((part, at))
            if len(alike) > 2 * MOST_ALIKE:
                old, its_place = alike.pop(MOST_ALIKE)
                self._parts[old].records[its_place] = None

    def _is_first_traceback(self, record: bytes) -> bool:
        place = _PLACE.search(record)
        if place is None or b'"traceback":' not in record or len(self._traced) >= MOST_PLACES:
            return False
        is_first = place[1] not in self._traced
        self._traced.add(place[1])
        return is_first

    def _find_first(
        self, words: Words, issues: Ints, completions: Ints, rows: step_rows.Rows, *, is_digest: bool
    ) -> None:
        calls = self._nonfinite(words, issues, completions)
        senders = [call.record_id for call in calls if call.has_sent]
        if senders and min(senders) < self._first_sent:  # a device may tell of an earlier one later
            self._first_sent = min(senders)
            self._ever.add(self._first_sent)
        received = [call for call in calls if not call.has_sent]
        if received and not self._has_received:
            self._has_received = True
            self._ever.add(min(received, key=lambda call: call.time_ns).record_id)
        self._first |= self._ever
        self._first.update(self._runs.of_part(calls, rows, self._marks.skipped, all_stay=is_digest))
        for record_id in self._runs.no_longer():
            if record_id not in self._ever:
                self._drop(record_id)

    def _nonfinite(self, words: Words, issues: Ints, completions: Ints) -> list[NonfiniteCall]:
        """But for those with which pipelining learns shapes."""
        sent = issues[seg.field(words, issues, fmt.ISSUE, 15) & _SENT > 0]
        flags = seg.field(words, completions, fmt.COMPLETE, 7)
        told, received = completions[flags & _SENT_LATER > 0], completions[flags & _RECEIVED > 0]
        if not (len(sent) or len(told) or len(received)):
            return []
        issued = {open_: (was.step, was.stack) for open_, was in self._open.items()}
        issued |= {here: (step, stack) for here, (step, stack, _) in _steps_and_stacks(words, issues).items()}
        learns = {stack: infers_shapes(self._frames(stack)) for stack in {stack for _, stack in issued.values()}}
        found = []
        for slots, layout, has_sent in (
            (sent, fmt.ISSUE, True),
            (told, fmt.COMPLETE, True),
            (received, fmt.COMPLETE, False),
        ):
            ids, times = (seg.field(words, slots, layout, number).tolist() for number in (0, 1))
            for record_id, time_ns in zip(ids, times, strict=True):
                step, stack = issued.get(record_id, (-1, 0))
                if step >= 0 and not learns[stack]:
                    found.append(NonfiniteCall(step, time_ns, record_id, has_sent))
        return found

    def _frames(self, stack: int) -> tuple[Frame, ...]:
        for record in self._to_decode:
            kind = fmt.RECORD.unpack_from(record)[1]
            with contextlib.suppress(ValueError, struct.error, CapsuleError):  # it is damaged: the stack is not known
                _DEFINED[kind](self._decoder, record[fmt.RECORD.size :])
        self._to_decode.clear()
        return self._decoder.stacks.get(stack, ())

    def _drop(self, record_id: int) -> None:
        """One that is open stays until it completes."""
        self._first.discard(record_id)
        for part, at in self._places.pop(record_id, ()):
            if record_id not in self._open:
                self._parts[part].records[at] = None

    def segment(self, number: int) -> bytes:
        """What was taken, as the segment of this number."""
        marks = kept_marks.newest([part.marks for part in self._parts])
        rows = step_rows.bounded([part.rows for part in self._parts]) if self.with_steps else []
        steps = [list(step_rows.records_of(each)) for each in rows] or [[]] * len(self._parts)
        kept = (
            record
            for part, of_steps, of_marks in zip(self._parts, steps, marks, strict=True)
            for record in (
                *filter(None, part.records[not self.with_steps :]),
                *of_steps,
                *kept_marks.records_of(of_marks),
            )
        )
        body = b"".join(kept) + fmt.RECORD.pack(fmt.RECORD.size, fmt.Kind.END, 0)
        magic, version, _, rank, pid, wall, monotonic, _ = fmt.HEADER.unpack(self._header)
        size_bytes = fmt.HEADER.size + len(body)
        return fmt.HEADER.pack(magic, version, number, rank, pid, wall, monotonic, size_bytes) + body


def _steps_and_stacks(words: Words, issues: Ints) -> dict[int, tuple[int, int, int]]:
    """By record id the step, the number of the stack, and the slot."""
    ids, steps, stacks = (seg.field(words, issues, fmt.ISSUE, number).tolist() for number in (0, 5, 9))
    return dict(zip(ids, zip(steps, stacks, issues.tolist(), strict=True), strict=True))
