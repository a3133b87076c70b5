"""When NaN and Inf came and went: a span of them is over once steps without any followed, as for `record`. What comes
after that is sought anew. A loss that begins as infinite, say, is no cause of NaN an hour later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

import numpy as np

from prismdbg.capsule.log.batch import CLEAN_STEPS
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.skipped_steps import ended_steps, skipped
from prismdbg.log.columns import NOT_ENDED, Bools, LogColumns
from prismdbg.log.segment import Ints
from prismdbg.log.step_rows import Rows

_NEVER_NS = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From `begin_ns` to before `end_ns`, by the clock of all ranks. is_over: steps without any came after it."""

    begin_ns: int
    end_ns: int
    is_over: bool

    def rows(self, log: LogColumns) -> Bools:
        """Calls that sent or received some in it."""
        begun, ended = (self._has(times + log.wall_offset_ns) for times in (log.begun_ns, log.ended_ns))
        has_received: Bools = log.received_nonfinite & (log.ended_ns != NOT_ENDED) & ended
        return has_received | (log.sent_nonfinite & begun)

    def has_earlier_row(self, log: LogColumns, rows: Rows, before_ns: int) -> bool:
        """Whether one of these rows of a summary is in it, and before that time; and of its steps no call is here."""
        begun = rows["begun_ns"] + log.wall_offset_ns
        earlier = rows[self._has(begun) & (begun < before_ns)]
        there = np.unique(log.step[log.nonfinite])
        first = np.searchsorted(there, earlier["first_step"], "left")
        last = np.searchsorted(there, earlier["last_step"], "right")
        return bool((first == last).any())

    def _has(self, times: Ints) -> Bools:
        found: Bools = (times >= self.begin_ns) & (times < self.end_ns)
        return found


def find_spans(evidence: Evidence, calls: Mapping[int, Bools], rows: Mapping[int, Rows]) -> list[Span]:
    """In order. calls: by rank those with NaN or Inf that count; rows: the same in its summary."""
    columns = evidence.columns
    times = [each for rank, log in columns.items() for each in _times(log, calls[rank], rows[rank])]
    bad = np.unique(np.concatenate(times)) if times else np.zeros(0, dtype=np.int64)
    if not len(bad):
        return []
    most = np.zeros(len(bad), dtype=np.int64)
    for log in columns.values():
        after, steps = steps_between(bad, *_clean_steps(log))
        most[after] = np.maximum(most[after], steps)
    ends = np.flatnonzero(most > CLEAN_STEPS)
    begins = [int(bad[0]), *(int(bad[end + 1]) for end in ends if end + 1 < len(bad))]
    is_over = len(ends) > 0 and int(ends[-1]) == len(bad) - 1
    return [
        Span(begin_ns=begin, end_ns=end, is_over=end != _NEVER_NS or is_over)
        for begin, end in zip(begins, [*begins[1:], _NEVER_NS], strict=True)
    ]


def rows_with_some(log: LogColumns, over: Set[int]) -> Rows:
    """Of the summary; over: steps that do not count."""
    rows = log.summary[log.summary["nonfinite"] > 0]
    is_over = (rows["first_step"] == rows["last_step"]) & np.isin(rows["first_step"], list(over))
    counting: Rows = rows[~is_over]
    return counting


def _times(log: LogColumns, calls: Bools, rows: Rows) -> Iterable[Ints]:
    yield log.begun_ns[calls & log.sent_nonfinite] + log.wall_offset_ns
    yield log.ended_ns[calls & log.received_nonfinite & (log.ended_ns != NOT_ENDED)] + log.wall_offset_ns
    yield rows["begun_ns"] + log.wall_offset_ns
    yield np.maximum(rows["ended_ns"], rows["begun_ns"]) + log.wall_offset_ns


def _clean_steps(log: LogColumns) -> tuple[Ints, Ints]:
    """When steps ended that no gradient scaler skipped, also one with NaN or Inf, and how many; of those that are
    summarized, when they began, but for these."""
    of_skipped = skipped(log)
    rows = log.summary[~np.isin(log.summary["first_step"], list(of_skipped))]
    is_clean = rows["nonfinite"] == 0
    count = np.where(is_clean, rows["last_step"].astype(np.int64) - rows["first_step"] + 1, 1)
    when = np.where(is_clean, rows["begun_ns"], np.maximum(rows["ended_ns"], rows["begun_ns"]) + 1)
    last = int(log.summary["last_step"].max(initial=0)) if len(log.summary) else -1
    marks = [mark.time_ns for ended, mark in ended_steps(log) if ended > last and ended not in of_skipped]
    when = np.append(when, np.array(marks, dtype=np.int64))
    count = np.append(count, np.ones(len(marks), dtype=np.int64))
    order = np.argsort(when, kind="stable")
    return when[order] + log.wall_offset_ns, count[order]


def steps_between(bad: Ints, when: Ints, steps: Ints) -> tuple[Ints, Ints]:
    """After which of the times `bad`, and before the next, there were steps, and how many. None of those at such a time
    itself count. Takes time by steps, and not by the times, which are those of all ranks."""
    at = np.searchsorted(bad, when, "right") - 1
    is_between = (at >= 0) & (bad[at] != when)
    after, first = np.unique(at[is_between], return_index=True)
    return after, np.add.reduceat(steps[is_between], first) if len(first) else first
