"""What stays of a log's segments in short, as a segment of its own: with all that later segments refer to.

Segments define texts, stacks and groups for all that come after them. Those that are dropped leave a preface in place
of the first. Beside the segments lies a summary of all that the rank has filled, dropped or not: who needs only the end
of a log reads it in place of what is before. Both have one part for each segment: its definitions and notes, the
collectives that were not complete, the first that sent NaN or Inf, the first that received some, and one row a step.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.reader import event_segments
from prismdbg.capsule.transfer import open_plain
from prismdbg.errors import CapsuleError
from prismdbg.log import segment as seg
from prismdbg.log import step_rows
from prismdbg.log.segment import Ints
from prismdbg.model.private_file import private

_KEPT = frozenset(map(int, (fmt.Kind.TEXT, fmt.Kind.STACK, fmt.Kind.GROUP, fmt.Kind.NOTE)))
_SENT, _RECEIVED = int(fmt.IssueFlag.SENT_NONFINITE), int(fmt.CompleteFlag.RECEIVED_NONFINITE)
_SENT_LATER = int(fmt.CompleteFlag.SENT_NONFINITE)
_FIRST_SLOT = fmt.HEADER.size // seg.SLOT_BYTES
_ALL = 1 << 32  # no segment has this number
Numbered = tuple[int, Path]  # a segment and its number


def preface(segments: Sequence[Numbered]) -> bytes:
    """One segment in place of these; the first may be a preface. `CapsuleError` where one is damaged."""
    digest = Digest()
    for number, path in segments:
        digest.add(path, number, one_before=_ALL)
    return digest.segment(0)


def preface_of_capsule(folder: Path, segments: Sequence[Numbered], following: int) -> bytes:
    """One segment without steps in place of these, by the summary as far as that covers them. `following`: the number
    of the segment after them."""
    covered = summarized(folder, [*segments, (following, folder)])
    digest = _begun(folder, Digest(with_steps=False), covered, before=following, one_before=_ALL)
    for number, path in segments:
        if number > digest.last:
            digest.add(path, number, one_before=_ALL)
    return digest.segment(0)


def summarize(folder: Path) -> None:
    """Brings the summary of a log up to the last segment that its rank has filled. A reader finds the old one or the
    new one, whole."""
    segments = event_segments(folder)
    covered = summarized(folder, segments)
    if all(number <= covered for number, _ in segments[:-1]):
        return
    there = next((number for number, _ in segments if number), 0)  # segment 0 may be a preface
    digest = _begun(folder, Digest(), covered, one_before=there)
    covered = digest.last
    for number, path in segments[:-1]:
        if number > digest.last and not digest.add(path, number, one_before=there, if_closed=True):
            break
    if digest.last > covered:
        put(folder / fmt.SUMMARY, digest.segment(digest.last))


def _begun(folder: Path, digest: Digest, covered: int, *, before: int = _ALL, one_before: int) -> Digest:
    """With what the summary says; as it was where there is none, or it is damaged."""
    if covered < 0:
        return digest
    try:
        digest.add(folder / fmt.SUMMARY, before=before, one_before=one_before)
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


def parts(words: seg.Words, others: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Of a preface or a summary the number of each segment, and the slot at which its part begins."""
    for kind, slot in others:
        if kind == fmt.Kind.SEGMENT:
            yield fmt.SEGMENT.unpack_from(seg.body(words, slot))[0], slot


def put(path: Path, data: bytes) -> None:
    """In one step, for whoever reads meanwhile."""
    new = path.with_name(f".{path.name}.new")
    with open(new, "wb", opener=private) as file:
        file.write(data)
    new.rename(path)


@dataclass(slots=True, kw_only=True)
class _Part:
    """Of one segment. `records`: None where one is complete by now."""

    records: list[bytes | None]
    rows: step_rows.Rows


@dataclass(slots=True)
class Digest:
    """Takes segments one after another, each a rank's own, a preface or a summary. `last`: up to which."""

    with_steps: bool = True
    last: int = -1
    _header: bytes = b""
    _parts: list[_Part] = field(default_factory=list)
    _open: dict[int, tuple[int, int]] = field(default_factory=dict)  # part and place of what may complete later
    _first: set[int] = field(default_factory=set)  # the first collectives with NaN or Inf
    _first_sent: int = 1 << 64  # no record has this number
    _has_received: bool = False

    def add(
        self, path: Path, number: int = 0, *, before: int = _ALL, one_before: int = 0, if_closed: bool = False
    ) -> bool:
        """`number`: of a rank's own segment. Of a preface or a summary only the parts of segments `before` this one
        count, and those `one_before` this one become one part, for nobody reads from within them. `if_closed`:
        a thread of the rank may still write to one that is not; False then, and nothing is added."""
        words = seg.read_words(path)
        self._header = self._header or words[:_FIRST_SLOT].tobytes()
        places = seg.find_records(words, path)
        if places.damage is not None:
            raise places.damage
        if if_closed and not places.closed:
            return False
        marks = list(parts(words, places.others))
        if not marks:
            self._add_part(number, words, places, _FIRST_SLOT, len(words), step_rows.rows_of(words, places))
            return True
        end = next((slot for of, slot in marks if of >= before), len(words))
        marks = [(of, slot) for of, slot in marks if of < before]
        joined = [of for of, _ in marks if of < one_before]
        starts = [(joined[-1], marks[0][1])] if joined else []
        starts += marks[len(joined) :]
        stops = [*(slot for _, slot in starts), end][1:]
        for (of, start), stop in zip(starts, stops, strict=True):
            others = [(kind, slot) for kind, slot in places.others if start <= slot < stop]
            self._add_part(of, words, replace(places, others=others), start, stop, step_rows.at(words, others))
        return True

    def _add_part(
        self, number: int, words: seg.Words, places: seg.Places, start: int, end: int, rows: step_rows.Rows
    ) -> None:
        issues, completions = (each[(each >= start) & (each < end)] for each in (places.issues, places.completions))
        issued = seg.field(words, issues, fmt.ISSUE, 0)
        done = seg.field(words, completions, fmt.COMPLETE, 0)
        self._find_first(words, issues, completions)
        first = list(self._first)
        stays = ~np.isin(issued, done) | np.isin(issued, first)
        slots = [slot for kind, slot in places.others if kind in _KEPT]
        slots = sorted([*slots, *issues[stays].tolist(), *completions[np.isin(done, first)].tolist()])
        for known in np.intersect1d(list(self._open), done).tolist():
            part, at = self._open.pop(known)
            if known not in self._first:
                self._parts[part].records[at] = None
        place = {slot: at for at, slot in enumerate(slots, 1)}
        open_ = stays & ~np.isin(issued, done)
        for record_id, slot in zip(issued[open_].tolist(), issues[open_].tolist(), strict=True):
            self._open[record_id] = len(self._parts), place[slot]
        mark = fmt.RECORD.pack(fmt.RECORD.size + fmt.SEGMENT.size, fmt.Kind.SEGMENT, 0) + fmt.SEGMENT.pack(number)
        self.last = number
        self._parts.append(_Part(records=[mark, *(seg.record(words, slot) for slot in slots)], rows=rows))

    def _find_first(self, words: seg.Words, issues: Ints, completions: Ints) -> None:
        sent = issues[seg.field(words, issues, fmt.ISSUE, 15) & _SENT > 0]
        told = completions[seg.field(words, completions, fmt.COMPLETE, 7) & _SENT_LATER > 0]
        senders = [*seg.field(words, sent, fmt.ISSUE, 0).tolist(), *seg.field(words, told, fmt.COMPLETE, 0).tolist()]
        if senders and min(senders) < self._first_sent:  # a device may tell of an earlier one later
            self._first_sent = min(senders)
            self._first.add(self._first_sent)
        received = completions[seg.field(words, completions, fmt.COMPLETE, 7) & _RECEIVED > 0]
        if len(received) and not self._has_received:
            self._has_received = True
            earliest = seg.field(words, received, fmt.COMPLETE, 1).argmin()
            self._first.add(int(seg.field(words, received, fmt.COMPLETE, 0)[earliest]))

    def segment(self, number: int) -> bytes:
        """What was taken, as the segment of this number."""
        rows = step_rows.bounded([part.rows for part in self._parts]) if self.with_steps else []
        steps = [list(step_rows.records_of(each)) for each in rows] or [[]] * len(self._parts)
        kept = (
            record
            for part, of_steps in zip(self._parts, steps, strict=True)
            for record in (*filter(None, part.records[not self.with_steps :]), *of_steps)
        )
        body = b"".join(kept) + fmt.RECORD.pack(fmt.RECORD.size, fmt.Kind.END, 0)
        magic, version, _, rank, pid, wall, monotonic, _ = fmt.HEADER.unpack(self._header)
        size_bytes = fmt.HEADER.size + len(body)
        return fmt.HEADER.pack(magic, version, number, rank, pid, wall, monotonic, size_bytes) + body
