"""Makes a log shorter without losing what its rest refers to.

Segments define texts, stacks and groups for all that come after them. Those that go leave a preface: a first segment
with their definitions, their notes, and the collectives that were not complete when they ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prismdbg.capsule import log_format as fmt
from prismdbg.capsule.log_reader import event_segments
from prismdbg.log import segment as seg

_KEPT = frozenset({fmt.Kind.TEXT, fmt.Kind.STACK, fmt.Kind.GROUP, fmt.Kind.NOTE})


def fold(folder: Path, budget_bytes: int, needed_from: int | None = None) -> int:
    """Drops the oldest segments of a live log until the rest takes `budget_bytes` at most; gives how many went.

    The segment that the rank writes to stays, and all from the first with record `needed_from` on. A reader finds the
    rest whole at any time: the preface is renamed into its place before a segment goes.
    """
    segments = event_segments(folder)
    excess = sum(path.stat().st_size for _, path in segments) - budget_bytes
    going: list[tuple[int, Path]] = []
    for number, path in segments[:-1]:
        if excess <= 0 or (needed_from is not None and _ids(path)[1] >= needed_from):
            break
        going.append((number, path))
        excess -= path.stat().st_size
    dropped = [path for number, path in going if number]
    if not dropped:  # a preface alone cannot become shorter
        return 0
    new = folder / f".{fmt.event_segment(0)}.new"
    new.write_bytes(preface([path for _, path in going]))
    new.rename(folder / fmt.event_segment(0))
    for path in dropped:
        path.unlink()
    return len(dropped)


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


def split_before(folder: Path, record_id: int) -> tuple[list[Path], list[Path]]:
    """The segments before the one in which this collective was issued, and the rest."""
    paths = [path for _, path in event_segments(folder)]
    first = len(paths)
    while first > 0:
        first -= 1
        lowest = _ids(paths[first])[0]
        if 0 <= lowest <= record_id and first:
            break
    return paths[:first], paths[first:]


def preface(segments: Sequence[Path]) -> bytes:
    """One segment in place of these. `CapsuleError` where one is damaged."""
    kept: list[bytes] = []
    issued: dict[int, bytes] = {}
    completed: set[int] = set()
    header = b""
    for path in segments:
        words = seg.read_words(path)
        header = header or words[: fmt.HEADER.size // seg.SLOT_BYTES].tobytes()
        places = seg.find_records(words, path)
        if places.damage is not None:
            raise places.damage
        kept += [seg.record(words, slot) for kind, slot in places.others if kind in _KEPT]
        issued |= dict(_records(words, places.issues))
        completed |= set(seg.field(words, places.completions, fmt.COMPLETE, 0).tolist())
    kept += [record for number, record in issued.items() if number not in completed]
    return _segment(header, [*kept, fmt.RECORD.pack(fmt.RECORD.size, fmt.Kind.END, 0)])


def _records(words: seg.Words, issues: seg.Ints) -> Iterator[tuple[int, bytes]]:
    ids = seg.field(words, issues, fmt.ISSUE, 0).tolist()
    return ((number, seg.record(words, slot)) for number, slot in zip(ids, issues.tolist(), strict=True))


def _ids(path: Path) -> tuple[int, int]:
    """The lowest and the highest record id that a segment issues; -1 where it issues none."""
    words = seg.read_words(path)
    ids = seg.field(words, seg.find_records(words, path).issues, fmt.ISSUE, 0)
    return (int(ids.min()), int(ids.max())) if len(ids) else (-1, -1)


def _segment(header: bytes, records: Iterable[bytes]) -> bytes:
    magic, version, _, rank, pid, wall, monotonic, _ = fmt.HEADER.unpack(header)
    body = b"".join(records)
    return fmt.HEADER.pack(magic, version, 0, rank, pid, wall, monotonic, fmt.HEADER.size + len(body)) + body
