"""Is a log undamaged, and does it hold what a replay needs? Asked of its columns: a capsule may hold millions of
collectives. What a replay needs of one of them is said by `capsule/log/coverage.py`, which is asked once for each kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.coverage import StartPoint, needs_payload
from prismdbg.capsule.manifest import Manifest
from prismdbg.log.columns import NOT_ENDED, Bools, LogColumns, read_whole
from prismdbg.log.distinct import distinct, kinds_of
from prismdbg.log.rank_log import rank_log
from prismdbg.log.segment import Ints
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted

_SHOWN = 3
_DEVICE, _FLAGS = 10, 15  # fields of an ISSUE record by their place in the format
_OFFSET, _SIZE, _STATUS, _MADE = 2, 3, 6, 8  # and of a COMPLETE record


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRows:
    """The rows of what a replay goes through, as `coverage.Span` has the collectives."""

    past_records: int
    records: Ints
    in_flight: Ints


def read_checked(folder: Path) -> LogColumns:
    """`CapsuleError` where there is no log, and where one of its records cannot be decoded."""
    log = read_whole(folder)
    device, flags = log.bodies.fields(np.arange(len(log)), fmt.ISSUE, (_DEVICE, _FLAGS))
    alike, _ = kinds_of(log.tensors, log.reduce_op, device, flags & int(fmt.IssueFlag.HAS_SKETCH))
    for row in np.sort(alike).tolist():
        log.collective(row)
    return log


def rows_of(log: LogColumns, start: StartPoint, end: Moment) -> SpanRows:
    """From the start to the end moment."""
    first = int(np.searchsorted(log.record_id, start.past_records))
    issued = np.arange(first, len(log))
    return SpanRows(
        past_records=start.past_records,
        records=issued[_is_before(log, issued, end.step, end.collective + 1)],
        in_flight=np.flatnonzero(np.isin(log.record_id[:first], np.array(sorted(start.in_flight), dtype=np.int64))),
    )


def gaps(log: LogColumns, span: SpanRows, folder: Path, manifest: Manifest) -> Iterator[str]:
    """One sentence for each thing that is missing between the start and the end moment."""
    yield from _missing_records(log, span, manifest.moment_a, manifest.moment_b)
    start = max(manifest.moment_a, manifest.replayable_from)
    wanted = span.records[~_is_before(log, span.records, start.step, start.collective + bool(start.op))]
    if manifest.replayable_from <= manifest.moment_a:
        wanted = np.concatenate([span.in_flight, wanted])
    yield from _missing_payloads(log, wanted[_lacks(log, wanted, folder)])


def _is_before(log: LogColumns, rows: Ints, step: int, collective: int) -> Bools:
    is_earlier = log.nth[rows] < collective
    before: Bools = (log.step[rows] < step) | ((log.step[rows] == step) & is_earlier)
    return before


def _missing_records(log: LogColumns, span: SpanRows, first: Moment, last: Moment) -> Iterator[str]:
    """The start moment itself may be issued before the origin or be its first call: the record after it is enough."""
    rows = span.records
    if not len(rows):
        if last != first:
            yield f"contains no collective after {first}, and ends at {last}"
        return
    begin, end = log.moment(rows[0]), log.moment(rows[-1])
    if begin != first and begin.collective != _next(first, begin):
        yield f"begins at {begin}, not at {first}"
    record_id = log.record_id[rows]
    if lost := int(record_id[0]) - span.past_records:
        yield f"lacks {counted(lost, 'collective')} before {begin}"
    lost_after = np.diff(record_id) - 1
    for at in np.flatnonzero(lost_after > 0).tolist():
        between = f"between {log.moment(rows[at])} and {log.moment(rows[at + 1])}"
        yield f"lacks {counted(int(lost_after[at]), 'collective')} {between}"
    if last.collective and end < Moment(last.step, last.collective):
        yield f"ends at {end}, before {last}"


def _next(moment: Moment, found: Moment) -> int:
    return moment.collective + 1 if found.step == moment.step else 1


def _missing_payloads(log: LogColumns, rows: Ints) -> Iterator[str]:
    if len(rows):
        shown = ", ".join(str(log.moment(row)) for row in rows[:_SHOWN].tolist())
        more = ", ..." if len(rows) > _SHOWN else ""
        yield f"lacks the data that {counted(len(rows), 'collective')} received: {shown}{more}"


def _lacks(log: LogColumns, rows: Ints, folder: Path) -> Bools:
    """Which of these cannot be answered as they were."""
    lacks = np.zeros(len(rows), dtype=np.bool_)
    ended = np.flatnonzero(log.ended_ns[rows] != NOT_ENDED)
    lacks[ended] = _needs(log, rows[ended]) & ~_has(log, rows[ended], folder)
    return lacks


def _needs(log: LogColumns, rows: Ints) -> Bools:
    """Whether only what was received answers it."""
    status, made = log.bodies.fields(rows, fmt.COMPLETE, (_STATUS, _MADE))
    synthesized = log.synthesized[rows].astype(np.int64)
    same = (log.tensors[rows], log.op[rows], log.group[rows], log.root[rows])
    of_kind, kind = kinds_of(*same, status, made, synthesized)
    values = rank_log(log)
    needs = [needs_payload(log.collective(row), values) for row in rows[of_kind].tolist()]
    return np.array(needs, dtype=np.bool_)[kind]


def _has(log: LogColumns, rows: Ints, folder: Path) -> Bools:
    """Whether its payload is in a segment of this folder."""
    offset, size_bytes = log.bodies.fields(rows, fmt.COMPLETE, (_OFFSET, _SIZE))
    segments, _, of = distinct(log.payload_segment[rows])
    in_file = np.array([_file_bytes(folder / fmt.payload_segment(s)) for s in segments.tolist()], dtype=np.int64)[of]
    return log.has_payload[rows] & (offset >= 0) & (size_bytes >= 0) & (offset <= in_file - size_bytes)


def _file_bytes(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
