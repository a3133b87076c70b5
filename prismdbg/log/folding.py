"""Makes a log shorter without losing what its rest refers to: segments that go leave a preface (`log/summary.py`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.reader import event_segments
from prismdbg.log import segment as seg
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
        if excess <= 0 or (needed_from is not None and _highest_id(path) >= needed_from):
            break
        going.append((number, path))
        excess -= path.stat().st_size
    dropped = [path for number, path in going if number]
    if not dropped:  # a preface alone cannot become shorter
        return 0
    put(folder / fmt.event_segment(0), preface(going))
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
    first = _first_whole([path for number, path in segments if number])
    lost = {number for number in older if number < first}
    return first <= record_id and (not lost or lost <= set(_ids(segments[0][1]).tolist()))


def span_kept_s(folder: Path, budget_bytes: int) -> float | None:
    """How far back, in seconds, a log of `budget_bytes` reaches at the pace of the last segment that the rank
    has filled; None while there is no such segment, or where it issues nothing."""
    segments = event_segments(folder)
    if len(segments) < 2:
        return None
    filled = segments[-2][1]
    words = seg.read_words(filled)
    begun = seg.field(words, seg.find_records(words, filled).issues, fmt.ISSUE, 1)
    took_ns = int(begun.max() - begun.min()) if len(begun) else 0
    return took_ns / 1e9 * budget_bytes / filled.stat().st_size if took_ns else None


def span_estimated_s(folder: Path, budget_bytes: int) -> float | None:
    """As `span_kept_s`, of a log whose first segment is not full: at the pace of its first collectives. None before
    there are enough of them, by number or by time."""
    segments = event_segments(folder)
    if len(segments) != 1:
        return None
    words = seg.read_words(segments[0][1])
    issues = seg.find_records(words, segments[0][1]).issues
    if len(issues) < 2:
        return None
    begun = seg.field(words, issues, fmt.ISSUE, 1)
    took_ns, took_bytes = int(begun.max() - begun.min()), int(issues[-1] - issues[0]) * seg.SLOT_BYTES
    is_enough = len(issues) >= ESTIMATED_FROM or took_ns >= ESTIMATED_AFTER_NS
    return took_ns / 1e9 * budget_bytes / took_bytes if is_enough and took_ns else None


def split_before(folder: Path, record_id: int) -> tuple[list[tuple[int, Path]], list[tuple[int, Path]]]:
    """The segments before the one in which this collective was issued, and the rest, with their numbers."""
    segments = event_segments(folder)
    first = len(segments)
    while first > 0:
        first -= 1
        if 0 <= _first_id(segments[first][1]) <= record_id and first:
            break
    return segments[:first], segments[first:]


def bytes_since(folder: Path, record_id: int) -> int:
    """The length of the segments from the one in which this collective was issued on."""
    return sum(path.stat().st_size for _, path in split_before(folder, record_id)[1])


def _first_whole(segments: Sequence[Path]) -> int:
    """The first record id that one of these issues. One that goes meanwhile counts no more."""
    for path in segments:
        with suppress(FileNotFoundError):
            if (first := _first_id(path)) >= 0:
                return first
    return _NONE


def _first_id(path: Path) -> int:
    """The first record id that a segment issues, without a look at the others; -1 where it issues none."""
    words = seg.read_words(path)
    slot = fmt.HEADER.size // seg.SLOT_BYTES
    while slot < len(words) and (slots := (int(words[slot]) & 0xFFFFFFFF) // seg.SLOT_BYTES):
        if int(words[slot]) >> 32 & 0xFFFF == fmt.Kind.ISSUE:
            return int(fmt.ISSUE.unpack_from(seg.body(words, slot))[0])
        slot += slots
    return -1


def _highest_id(path: Path) -> int:
    """Of the collectives that a segment issues; -1 where it issues none."""
    return int(_ids(path).max(initial=-1))


def _ids(path: Path) -> seg.Ints:
    words = seg.read_words(path)
    return seg.field(words, seg.find_records(words, path).issues, fmt.ISSUE, 0)
