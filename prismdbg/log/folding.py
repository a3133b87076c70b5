"""Makes a log shorter without losing what its rest refers to: segments that go leave a preface (`log/summary.py`)."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.part_table import FIRST_SLOT, SLOT_BYTES
from prismdbg.capsule.log.reader import event_segments
from prismdbg.log import segment as seg
from prismdbg.log.log_parts import LogPart, all_parts, log_parts, parts_of
from prismdbg.log.summary import preface, put

# An estimate needs so many collectives, or collectives of so long a time.
ESTIMATED_FROM, ESTIMATED_AFTER_NS = 500, 60 * 10**9
_NONE = 1 << 64  # no record has this number


def fold(folder: Path, budget_bytes: int, needed_from: int | None = None) -> int:
    """Drops the oldest segments of a live log until the rest takes `budget_bytes` at most; gives how many went.

    The segment that the rank writes to stays, and all from the first with record `needed_from` on. A reader finds the
    rest whole at any time: the preface is renamed into its place before a segment goes.
    """
    segments = event_segments(folder)
    excess = sum(path.stat().st_size for _, path in segments) - budget_bytes
    going: list[tuple[int, Path]] = []
    for number, path in segments[:-1]:
        if excess <= 0 or (needed_from is not None and _highest_id(number, path) >= needed_from):
            break
        going.append((number, path))
        excess -= path.stat().st_size
    dropped = [path for number, path in going if number]
    if not dropped:  # a preface alone cannot become shorter
        return 0
    put(folder / fmt.event_segment(0), [preface(all_parts(going))])
    for path in dropped:
        path.unlink()
    return len(dropped)


def needed_after(past_records: int) -> int:
    """The collective from which on a log must be there for a start after that many: what the rank read after the last
    of them is needed, too."""
    return max(past_records - 1, 0)


def reaches(folder: Path, record_id: int, older: Collection[int] = ()) -> bool:
    """Whether a log has all collectives from this one on, and these `older` ones. One that was not complete when its
    segment went stays in the preface as long."""
    segments = event_segments(folder)
    if [number for number, _ in segments[:2]] in ([], [0], [0, 1]):
        return True
    first = _first_whole(folder)
    lost = {number for number in older if number < first}
    return first <= record_id and (not lost or lost <= set(_ids(parts_of(*segments[0])[0]).tolist()))


def span_kept_s(folder: Path, budget_bytes: int) -> float | None:
    """How far back, in seconds, a log of `budget_bytes` reaches at the pace of the last segment that the rank
    has filled; None while there is no such segment, or where it issues nothing."""
    segments = event_segments(folder)
    if len(segments) < 2:
        return None
    filled = parts_of(*segments[-2])[-1]
    words = filled.words()
    begun = seg.field(words, seg.find_records(words, filled).issues, fmt.ISSUE, 1)
    took_ns = int(begun.max() - begun.min()) if len(begun) else 0
    return took_ns / 1e9 * budget_bytes / filled.size_bytes() if took_ns else None


def span_estimated_s(folder: Path, budget_bytes: int) -> float | None:
    """As `span_kept_s`, of a log whose first segment is not full: at the pace of its first collectives. None before
    there are enough of them, by number or by time."""
    segments = event_segments(folder)
    if len(segments) != 1:
        return None
    (first,) = all_parts(segments)
    words = first.words()
    issues = seg.find_records(words, first).issues
    if len(issues) < 2:
        return None
    begun = seg.field(words, issues, fmt.ISSUE, 1)
    took_ns, took_bytes = int(begun.max() - begun.min()), int(issues[-1] - issues[0]) * SLOT_BYTES
    is_enough = len(issues) >= ESTIMATED_FROM or took_ns >= ESTIMATED_AFTER_NS
    return took_ns / 1e9 * budget_bytes / took_bytes if is_enough and took_ns else None


def split_before(folder: Path, record_id: int) -> tuple[list[LogPart], list[LogPart]]:
    """The segments before the one in which this collective was issued, and the rest."""
    segments = log_parts(folder)
    first = len(segments)
    while first > 0:
        first -= 1
        if 0 <= _first_id(segments[first]) <= record_id and first:
            break
    return segments[:first], segments[first:]


def bytes_since(folder: Path, record_id: int) -> int:
    """The length of the segments from the one in which this collective was issued on."""
    return sum(segment.size_bytes() for segment in split_before(folder, record_id)[1])


def _first_whole(folder: Path) -> int:
    """The first record id that a segment issues, but for a preface. One that goes meanwhile counts no more."""
    for number, path in event_segments(folder):
        with suppress(FileNotFoundError):
            for segment in parts_of(number, path) if number else ():
                if (first := _first_id(segment)) >= 0:
                    return first
    return _NONE


def _first_id(segment: LogPart) -> int:
    """The first record id that a segment issues, without a look at the others; -1 where it issues none."""
    words = segment.words()
    slot = FIRST_SLOT
    while slot < len(words) and (slots := (int(words[slot]) & 0xFFFFFFFF) // SLOT_BYTES):
        if int(words[slot]) >> 32 & 0xFFFF == fmt.Kind.ISSUE:
            return int(fmt.ISSUE.unpack_from(seg.body(words, slot))[0])
        slot += slots
    return -1


def _highest_id(number: int, path: Path) -> int:
    """Of the collectives that a file's segments issue; -1 where they issue none."""
    return max(int(_ids(segment).max(initial=-1)) for segment in parts_of(number, path))


def _ids(segment: LogPart) -> seg.Ints:
    words = segment.words()
    return seg.field(words, seg.find_records(words, segment).issues, fmt.ISSUE, 0)
