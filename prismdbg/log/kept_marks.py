"""Which marks of steps stay in a log's summary: what its gradient scaler skipped, and got over, is decided by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.events import StepMark

MOST_MARKS = 1 << 15
_MARKS_AFTER = 10  # a skipped step: in 8 of them its gradients may be left, and one shows that they are not
_SKIPPED = int(fmt.StepSource.SKIPPED_BY_SCALER)
_MARK = int(fmt.Kind.MARK)


@dataclass(slots=True)
class KeptMarks:
    """Of one log: the first, the last of each segment, and those around steps that were skipped. Thus, of two that stay
    one after another, no step between them was skipped. skipped: the steps."""

    skipped: set[int] = field(default_factory=set)
    _step: int | None = None
    _after: int = 0

    def of_part(self, marks: Iterable[tuple[int, bytes]]) -> list[bytes]:
        """The bodies that stay of these; each with the kind of its record: those of a summary do."""
        found: list[bytes] = []
        left_out = b""
        for kind, body in marks:
            step, _, source = fmt.STEP.unpack_from(body)
            is_first = self._step is None
            if source == _SKIPPED:
                self._after = _MARKS_AFTER
                found += [left_out] if left_out else []
            if kind == _MARK or is_first or self._after:
                found.append(body)
                left_out = b""
            else:
                left_out = body
            self.note([(step, source == _SKIPPED)])
            self._after = max(self._after - 1, 0)
        return [*found, left_out] if left_out else found

    def note(self, marks: Iterable[tuple[int, bool]]) -> None:
        """Each: the step that begins, and whether the one that ends was skipped."""
        for step, is_skipped in marks:
            if is_skipped:
                self.skipped.add(step - 1 if self._step is None else self._step)
            self._step = step


def newest(parts: Sequence[list[bytes]], most: int = MOST_MARKS) -> list[list[bytes]]:
    """The last of them, where there are too many."""
    left, found = most, []
    for marks in reversed(parts):
        found.append(marks[max(len(marks) - left, 0) :])
        left = max(left - len(marks), 0)
    return found[::-1]


def around_skipped(marks: Sequence[StepMark]) -> list[StepMark]:
    """Of those that stay in a summary, without the last ones of its segments, but for the very last: a job of weeks has
    tens of thousands of segments."""
    stays = {0, len(marks) - 1}
    for at, mark in enumerate(marks):
        if mark.source is fmt.StepSource.SKIPPED_BY_SCALER:
            stays.update(range(max(at - 1, 0), min(at + _MARKS_AFTER, len(marks))))
    return [marks[at] for at in sorted(stays)] if marks else []


def records_of(marks: Iterable[bytes]) -> list[bytes]:
    head = fmt.RECORD.pack(fmt.RECORD.size + fmt.STEP.size, _MARK, 0)
    return [head + body[: fmt.STEP.size] for body in marks]
