"""The time over which a rank was late, and what it did in it: what readings of sensors are compared over."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from prismdbg.diagnosis.cross_rank import at_seqs, rows_of
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.stragglers import LEAST_LATENESS_NS, waits_by_group
from prismdbg.log.columns import NOT_ENDED, LogColumns
from prismdbg.log.segment import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class LateSpan:
    """From the end of the call before the first late one to the begin of the last late one, by the clock of the logs.

    late_ns: by how much the rank came later than the others, in sum; times that it came earlier are subtracted.
    place: where most of the late calls stand; before: where most of the calls before them do.
    """

    rank: int
    others: tuple[int, ...]
    begin_ns: int
    end_ns: int
    late_ns: int
    place: str
    before: str

    @property
    def lasted_ns(self) -> int:
        return self.end_ns - self.begin_ns


def late_span(evidence: Evidence, group: str, rank: int, within: tuple[int, int]) -> LateSpan | None:
    """Of the late calls that lie in `within`, for which there are readings. None where there are fewer than two.

    Until the first step is complete, ranks wait for those that started later: not counted where there are more steps.
    """
    waits = waits_by_group(evidence).get(group)
    if waits is None or rank not in waits.ranks:
        return None
    place = waits.ranks.index(rank)
    log = evidence.columns[rank]
    rows = at_seqs(log, rows_of(evidence, group)[rank], waits.seqs)
    late_ns = waits.lateness_ns(place)
    counts = (log.begun_ns[rows] >= within[0]) & (log.begun_ns[rows] <= within[1])
    if log.step.max(initial=0) > 0:
        counts &= log.step[rows] > 0
    is_late = counts & (waits.last == place) & (late_ns >= LEAST_LATENESS_NS)
    if is_late.sum() < 2:
        return None
    first, last = np.flatnonzero(is_late)[[0, -1]]
    return LateSpan(
        rank=rank,
        others=tuple(each for each in waits.ranks if each != rank),
        begin_ns=max(_ended_before(log, int(rows[first])), within[0]),
        end_ns=int(log.begun_ns[rows[last]]),
        late_ns=round(float(late_ns[first : last + 1][counts[first : last + 1]].sum())),
        place=_place(log, rows[is_late]),
        before=_place(log, rows[is_late] - 1),
    )


def _ended_before(log: LogColumns, row: int) -> int:
    """When the call before it ended; when it was issued, where that did not end before."""
    if not row:
        return int(log.begun_ns[0])
    ended = int(log.ended_ns[row - 1])
    return ended if NOT_ENDED < ended <= log.begun_ns[row] else int(log.begun_ns[row - 1])


def in_collectives_ns(log: LogColumns, begin_ns: int, end_ns: int, without: Ints | None = None) -> int:
    """How long calls held a rank between two times: asynchronous ones from when it began to wait for them. without:
    rows that do not count."""
    since = np.where(log.is_async, log.waited_ns, log.begun_ns)
    held = (log.ended_ns != NOT_ENDED) & (since > NOT_ENDED) & (log.ended_ns > begin_ns) & (since < end_ns)
    if without is not None:
        held[without] = False
    spent = np.minimum(log.ended_ns[held], end_ns) - np.maximum(since[held], begin_ns)
    return int(spent.clip(min=0).sum())


def _place(log: LogColumns, rows: Ints) -> str:
    """As ` at train.py:12 in main`; empty where no frame was kept."""
    rows = rows[rows >= 0]
    if not len(rows):
        return ""
    stack, _ = Counter(log.stack[rows].tolist()).most_common(1)[0]
    row = int(rows[log.stack[rows] == stack][0])
    collective = log.collective(row)
    return f"{collective.name} at {collective.place}" if collective.place else collective.name
