"""Steps of one rank that its gradient scaler skipped, and which of them it got over, as `record` decides it, too: an
optimizer took a step since, and a step was without NaN or Inf since. Between the two, what was left of the skipped step
may have been sent again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from prismdbg.capsule.log import notes
from prismdbg.capsule.log.events import Note, StepMark
from prismdbg.capsule.log.format import StepSource
from prismdbg.log.columns import Bools, LogColumns

LEFT_OVER_STEPS = 8  # in which gradients of a skipped step may be sent again, at least


def may_be_left(steps: int, gap: int) -> bool:
    """Whether gradients of an optimizer that was skipped may not have been set to zero in so many steps since. gap: the
    most steps from one in which it was due to the next."""
    return steps <= max(2 * gap, LEFT_OVER_STEPS)


def skipped(log: LogColumns) -> set[int]:
    """Steps with gradients that a gradient scaler kept from an optimizer."""
    return skipped_first(log) | {
        note.data["step"] for note in log.notes if note.kind == notes.SKIPPED and note.data["step"] is not None
    }


def skipped_first(log: LogColumns) -> set[int]:
    """By the optimizer with which steps end."""
    return {ended for ended, mark in ended_steps(log) if mark.source is StepSource.SKIPPED_BY_SCALER}


def ended_steps(log: LogColumns) -> Iterator[tuple[int, StepMark]]:
    """Each with the mark that ended it. Of a summary: some that were taken are missing, and none that was skipped."""
    before: StepMark | None = None
    for mark in log.marks:
        yield (mark.step - 1 if before is None else before.step), mark
        before = mark


def last_taken(log: LogColumns) -> int:
    """The step that began when no optimizer had last been skipped."""
    of_skipped = skipped(log)
    return max((mark.step for ended, mark in ended_steps(log) if ended not in of_skipped), default=0)


def got_over(log: LogColumns, nonfinite: Bools) -> set[int]:
    """Steps that were skipped, and those in which something was left of them, that are over. nonfinite: rows of calls
    that sent or received NaN or Inf."""
    of_skipped = skipped(log)
    if not of_skipped:
        return set()
    bad = set(np.unique(log.step[nonfinite]).tolist()) | _summarized(log)
    may_hold, never_taken = _left_overs(log)
    found: set[int] = set()
    span: list[int] = []  # of steps that are not over
    left = 0  # of these, steps that were taken
    for step, _ in ended_steps(log):
        if step in of_skipped:
            span.append(step)
        elif step in bad and step in may_hold and left < LEFT_OVER_STEPS:
            span.append(step)
            left += 1
        else:
            found |= set() if step in bad else set(span)
            span, left = [], 0
    last = log.marks[-1].step  # it has not ended
    waits_for_one = bool(never_taken) or (bool(span) and span[-1] in of_skipped)
    if not waits_for_one and last not in bad and bool((log.step == last).any()):
        found |= set(span)
    return found - never_taken


def _summarized(log: LogColumns) -> set[int]:
    """Steps with NaN or Inf of which there are rows alone. Of a row of several, it is not known which of them it was;
    but the first with some after a skipped one is there."""
    rows = log.summary
    known = rows[(rows["nonfinite"] > 0) & (rows["first_step"] == rows["last_step"])]
    return set(known["first_step"].tolist())


def are_unknown(log: LogColumns, step: int) -> bool:
    """Whether a gradient scaler may have skipped the step, or a later one, and nothing is left that says so."""
    scales = any(note.kind == "scaler" for note in log.notes) or bool(skipped_first(log))
    first = log.marks[0].step - 1 if log.marks else step + 1
    return scales and bool(len(log.summary)) and step < first


def _left_overs(log: LogColumns) -> tuple[set[int], set[int]]:
    """Steps that may hold gradients of skipped ones; and those that were skipped by other optimizers than the first
    that took no step since."""
    may_hold: set[int] = set()
    rows: dict[int, _Row] = {}  # by number of the optimizer
    step = begun = 0
    events: list[StepMark | Note] = [*log.marks, *log.notes]
    for event in sorted(events, key=lambda one: one.time_ns):
        match event:
            case StepMark():
                step, begun = event.step, begun + 1
                is_skipped = event.source is StepSource.SKIPPED_BY_SCALER
                if is_skipped or any(row.may_be_left(begun) for row in rows.values()):
                    may_hold.add(step)
            case Note(kind=notes.SKIPPED):
                may_hold.add(step)
                optimizer, of = event.data.get("optimizer"), event.data["step"]
                if optimizer is not None and of is not None:
                    rows.setdefault(optimizer, _Row()).add(of, begun)
            case Note(kind=notes.TAKEN):
                rows.pop(event.data["optimizer"], None)
    return may_hold, {of for row in rows.values() for of in row.steps}


@dataclass(slots=True)
class _Row:
    """Steps in which one optimizer was skipped, one after another of those in which it was due. begun: how many steps
    had begun at the last of them; gap: the most from one to the next."""

    steps: list[int] = field(default_factory=list)
    begun: int = 0
    gap: int = 1

    def add(self, step: int, begun: int) -> None:
        self.gap = max(self.gap, begun - self.begun) if self.steps else 1
        self.steps.append(step)
        self.begun = begun

    def may_be_left(self, begun: int) -> bool:
        return may_be_left(begun - self.begun, self.gap)
