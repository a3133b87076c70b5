"""Which NaN or Inf of a job is an incident. What a gradient scaler skips, and what is gone soon after, is none: a
scaler looks for overflows in that way. Gradients of a skipped step stay until they are set to zero, and may be sent
again in a step that is taken: that is not the first NaN or Inf, and none at all once a step was without any. After an
incident the watch begins anew once steps were without any. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from prismdbg.capsule.log.batch import CLEAN_STEPS, Batch
from prismdbg.capsule.log.events import StepMark
from prismdbg.capsule.log.format import StepSource
from prismdbg.diagnosis.collective_key import CollectiveKey, collective_key
from prismdbg.diagnosis.skipped_steps import LEFT_OVER_STEPS, may_be_left
from prismdbg.jobs.storage.run_folder import rank_of
from prismdbg.model.collective import Collective, Group, State
from prismdbg.model.plurals import counted

SKIPPED_IN_A_ROW = 8  # then it is no overflow that a smaller scale would mend
SKIPPED_WHEN_INTERRUPTED = 2
MOST_INCIDENTS = 3  # of one attempt of the job: a job of weeks must not be told of each
NO_MORE = f"; no more than {MOST_INCIDENTS} of these are reported, `prismdbg why` reads the logs"
LONGEST_HELD_NS = 60_000_000_000  # for the end of its step, where steps do not usually take longer
_STEPS_HELD = 3
_STEPS_KNOWN = 64
FIRST = 0  # the optimizer with which steps end; the others have numbers from 1
UNNAMED = -1  # some other one: it is taken to be due in each step


@dataclass(slots=True)
class Nonfinite:
    """`groups`: those of its rank, by name; they are filled while the log is read. read_ns: when the log told of it."""

    folder: str
    record: Collective
    groups: Mapping[str, Group]
    sent: bool
    read_ns: int

    @property
    def step(self) -> int:
        return self.record.moment.step

    @property
    def key(self) -> CollectiveKey:
        """The same for all that take part, a sender and a receiver, too."""
        name = self.record.group
        group = self.groups.get(name, Group(name=name, ranks=()))
        return collective_key(self.record, rank_of(Path(self.folder)), group)

    @property
    def seen_ns(self) -> int:
        """A sender shows when it sends, a receiver when it has received."""
        return self.record.sent_ns if self.sent else self.record.time_completed_ns or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstOfThem:
    """`nth` of the attempt, from 1. since_step: from which on it is the first; 0: from the start. remark: what else is
    to be said of it, or empty."""

    found: Nonfinite
    nth: int
    since_step: int
    remark: str


class _Step(Enum):
    """What became of the step in which a value was not finite."""

    TAKEN = auto()  # or nobody scales gradients
    LEFT_OVER = auto()  # taken, and the value may be left of a step that was skipped
    SKIPPED = auto()
    OPEN = auto()  # a scaler may still skip it


_CAME_AGAIN = (_Step.TAKEN, _Step.LEFT_OVER)


@dataclass(slots=True)
class _Row:
    """What one optimizer was skipped in, one after another of the steps in which it was due. `gap`: the most steps from
    one of these to the next. begun: how many steps had begun when it was skipped last."""

    first: int
    last: int
    begun: int
    count: int = 1
    gap: int = 1

    def add(self, step: int, begun: int) -> None:
        self.gap = max(self.gap, min(step - self.last, _STEPS_KNOWN))
        self.last, self.begun, self.count = step, begun, self.count + 1

    def may_be_left(self, begun: int) -> bool:
        return may_be_left(begun - self.begun, self.gap)

    def may_go_on(self, step: int) -> bool:
        """Whether the optimizer was perhaps only not due since."""
        return step - self.last <= 2 * self.gap


@dataclass(slots=True)
class NonfiniteWatch:
    """Of one attempt of the job. `since_ns`: since when there is something to decide."""

    since_ns: int | None = None
    _pending: list[Nonfinite] = field(default_factory=list)
    _scalers: set[str] = field(default_factory=set)  # log folders of ranks with one
    _several: set[str] = field(default_factory=set)  # of these, those whose scalers step several optimizers
    _begun: dict[str, int] = field(default_factory=dict)  # by folder, the step that began last
    _marks: dict[str, int] = field(default_factory=dict)  # by folder, how many steps began
    _late: dict[str, int] = field(default_factory=dict)  # by folder, a step that ended and may still be skipped
    _skipped: dict[str, dict[int, set[int]]] = field(default_factory=dict)  # by folder and step, optimizers
    _rows: dict[tuple[str, int], _Row] = field(default_factory=dict)  # by folder and optimizer, until it takes a step
    _clean: dict[str, int] = field(default_factory=dict)  # by folder, steps since a value was not finite
    _left_overs: dict[str, deque[int]] = field(default_factory=dict)  # by folder, steps that may hold some
    _nonfinite: dict[str, deque[int]] = field(default_factory=dict)  # by folder, steps with a value that was not finite
    _last_clean: dict[str, int] = field(default_factory=dict)  # by folder, the last step taken that was without any
    _has_called: set[str] = field(default_factory=set)  # folders with a collective in the step that began last
    _told: int = 0
    _is_off: bool = False
    _since_step: int = 0

    @property
    def next_since(self) -> int | None:
        """From which step on the next one is an incident; None while it is none, whatever comes."""
        return None if self._is_off else self._since_step

    def note_scaler(self, folder: str, *, several: bool = False) -> None:
        """several: it steps more than one optimizer. A step ends with the first of them."""
        self._scalers.add(folder)
        if several:
            self._several.add(folder)

    def note_skipped(self, folder: str, step: int, optimizer: int = UNNAMED) -> None:
        """Another optimizer than the first was skipped, with the gradients of `step`."""
        self.note_scaler(folder, several=True)
        self._note_skipped(folder, step, optimizer)
        self._add_left_over(folder, self._begun.get(folder, 0))

    def note_taken(self, folder: str, optimizer: int) -> None:
        """Another optimizer than the first took a step, after it had been skipped."""
        self._rows.pop((folder, optimizer), None)
        self._drop_what_is_over(folder)

    def _note_skipped(self, folder: str, step: int, optimizer: int) -> None:
        skipped = self._skipped.setdefault(folder, {})
        by = skipped.setdefault(step, set())
        if optimizer in by:
            return
        by.add(optimizer)
        for old in list(skipped)[:-_STEPS_KNOWN]:
            del skipped[old]
        row = self._rows.get((folder, optimizer))
        if row is None:
            self._rows[folder, optimizer] = _Row(step, step, self._marks.get(folder, 0))
        else:
            row.add(step, self._marks.get(folder, 0))

    def note_batch(self, folder: str, batch: Batch, groups: Mapping[str, Group], now_ns: int) -> None:
        """Collectives as they were issued, or as they were completed; what a device sends is known only then."""
        if batch.reached:
            self._has_called.add(folder)
        if batch.nonfinite or batch.notable:
            self._clean.clear()
            steps = self._nonfinite.setdefault(folder, deque(maxlen=_STEPS_KNOWN))
            steps.extend({record.moment.step for record in batch.notable} or {self._begun.get(folder, 0)})
        if self._is_off or self._told >= MOST_INCIDENTS:
            return
        for record in batch.notable:
            sent = record.sent_nonfinite and (record.state is State.SCHEDULED or record.is_on_device)
            if (sent or not record.synthesized) and record.moment.step >= self._since_step:
                self._pending.append(Nonfinite(folder, record, groups, sent, now_ns))
                self.since_ns = now_ns if self.since_ns is None else self.since_ns

    def note_step(self, folder: str, mark: StepMark) -> None:
        """Steps that are marked by hand may have any numbers."""
        ended = self._begun.get(folder, 0)
        self._begun[folder] = mark.step
        self._marks[folder] = self._marks.get(folder, 0) + 1
        if mark.source is StepSource.SKIPPED_BY_SCALER:
            self._scalers.add(folder)
            self._note_skipped(folder, ended, FIRST)
        if self._leaves_gradients(folder, ended):
            self._add_left_over(folder, mark.step)
        self._has_called.discard(folder)
        late = self._late.pop(folder, None)
        if late is not None:
            self._settle(folder, late, mark.step)
        if self._may_still_be_skipped(folder, ended):
            self._late[folder] = ended
        else:
            self._settle(folder, ended, mark.step)

    def _leaves_gradients(self, folder: str, ended: int) -> bool:
        """Whether some that are not finite may be there when a step has ended. Before the first optimizer is due again,
        others may be, and send them: the discriminator's, say, when the loss of the generator goes through it."""
        begun = self._marks[folder]
        rows = (row for (of, optimizer), row in self._rows.items() if of == folder and optimizer != FIRST)
        return FIRST in self._skipped.get(folder, {}).get(ended, ()) or any(row.may_be_left(begun) for row in rows)

    def _add_left_over(self, folder: str, step: int) -> None:
        self._left_overs.setdefault(folder, deque(maxlen=_STEPS_KNOWN)).append(step)

    def _may_still_be_skipped(self, folder: str, ended: int) -> bool:
        """The other optimizers follow the first one, which ends the step. In its first step, a rank has not said yet
        whether it has others."""
        may_have_others = folder in self._several or (folder in self._scalers and self._marks[folder] < 2)
        return may_have_others and ended not in self._skipped.get(folder, ())

    def _settle(self, folder: str, ended: int, begun: int) -> None:
        """It is known what became of a step. Those of the other optimizers that are known by number may not have been
        due in it: they say themselves when they take a step."""
        skipped = self._skipped.get(folder, {}).get(ended, set())
        for optimizer in {FIRST, UNNAMED} - skipped:
            row = self._rows.get((folder, optimizer))
            if row is not None and row.last <= ended:
                del self._rows[folder, optimizer]
        if not skipped:
            self._settle_left_overs(folder, ended)
        self._drop_what_is_over(folder)
        if skipped:
            return
        self._clean[folder] = self._clean.get(folder, 0) + 1
        lasts = any(of == folder and row.may_go_on(begun) for (of, _), row in self._rows.items())
        if self._is_off and self._clean[folder] > CLEAN_STEPS and not lasts:  # the first one ended what was not finite
            self._is_off = False
            self._since_step = begun - CLEAN_STEPS

    def _settle_left_overs(self, folder: str, taken: int) -> None:
        """What comes again in a step that cannot hold any, or without end, is none."""
        if taken not in self._nonfinite.get(folder, ()):
            self._last_clean[folder] = taken
            self._pending = [
                one
                for one in self._pending
                if one.folder != folder or one.step >= taken or self._became(one) is not _Step.LEFT_OVER
            ]
            return
        held = {one.step for one in self._pending if one.folder == folder and self._became(one) is _Step.LEFT_OVER}
        if taken not in self._left_overs.get(folder, ()) or len(held) >= LEFT_OVER_STEPS:
            self._left_overs.pop(folder, None)

    def _drop_what_is_over(self, folder: str) -> None:
        """What was skipped by optimizers that took a step since, unless it came again since."""
        later = (one.step for one in self._pending if one.folder == folder and self._became(one) in _CAME_AGAIN)
        came_again = max(later, default=-1)
        self._pending = [
            one
            for one in self._pending
            if one.folder != folder
            or self._became(one) is not _Step.SKIPPED
            or self._rows_of(one)
            or self._last_clean.get(folder, -1) < one.step < came_again
        ]
        if not self._pending:
            self.since_ns = None

    def _rows_of(self, one: Nonfinite) -> list[_Row]:
        """Of the optimizers that were skipped in its step, and took none since."""
        by = self._skipped.get(one.folder, {}).get(one.step, set())
        rows = (self._rows.get((one.folder, optimizer)) for optimizer in by)
        return [row for row in rows if row is not None and row.first <= one.step]

    def decide(self, now_ns: int, ended: bool, usual_step_ns: int, *, interrupted: bool = False) -> FirstOfThem | None:
        """Once what was seen has settled. interrupted: the job is told to end, and would have gone on; a single step
        that was skipped last may be an overflow like any other."""
        if ended:
            self._settle_the_last_steps()
        if not self._pending:
            return None
        became = [self._became(one) for one in self._pending]
        rows = [row for one in self._pending for row in self._rows_of(one)]
        row = max((each.count for each in rows), default=0)
        remark = ""
        if _Step.TAKEN in became:
            found = [
                one
                for one, step in zip(self._pending, became, strict=True)
                if step is not _Step.SKIPPED or one.step > self._last_clean.get(one.folder, -1)
            ]
        elif (
            ended
            or row >= (SKIPPED_WHEN_INTERRUPTED if interrupted else SKIPPED_IN_A_ROW)
            or self._is_held_too_long(became, now_ns, usual_step_ns)
        ):
            found = self._pending
            remark = f"; the gradient scaler skipped {counted(row, 'step')} in a row" if row else ""
        else:
            if _Step.LEFT_OVER not in became:  # else the next step, or the job's end, decides
                self._forget_long_past(now_ns, usual_step_ns * max((each.gap for each in rows), default=1))
            return None
        self._told += 1
        if self._told == MOST_INCIDENTS:
            remark += NO_MORE
        first = FirstOfThem(
            found=_first_of(found, self._pending), nth=self._told, since_step=self._since_step, remark=remark
        )
        self._pending, self.since_ns, self._is_off = [], None, True
        self._clean.clear()
        return first

    def _settle_the_last_steps(self) -> None:
        """Of a job that has ended: no optimizer follows in them. The one that has begun is no step taken, but where it
        was without any as far as it went, nothing was left in it."""
        for folder, late in list(self._late.items()):
            del self._late[folder]
            self._settle(folder, late, self._begun[folder])
        for folder in self._has_called:
            waits_for_one = any(of == folder for of, _ in self._rows)
            if not waits_for_one and (begun := self._begun.get(folder, 0)) not in self._nonfinite.get(folder, ()):
                self._settle_left_overs(folder, begun)
                self._drop_what_is_over(folder)

    def _became(self, one: Nonfinite) -> _Step:
        step = one.step
        if one.folder not in self._scalers:
            return _Step.TAKEN
        if self._begun.get(one.folder, 0) <= step:
            return _Step.OPEN
        if step in self._skipped.get(one.folder, ()):
            return _Step.SKIPPED
        if self._late.get(one.folder) == step:
            return _Step.OPEN
        return _Step.LEFT_OVER if step in self._left_overs.get(one.folder, ()) else _Step.TAKEN

    def _forget_long_past(self, now_ns: int, due_each_ns: int) -> None:
        """A step was skipped, and none came since: an evaluation, say. What the next one sends is told anew."""
        longest_ns = max(LONGEST_HELD_NS, (SKIPPED_IN_A_ROW + _STEPS_HELD) * due_each_ns)
        if self.since_ns is not None and now_ns - self.since_ns >= longest_ns:
            self._pending, self.since_ns = [], None

    def _is_held_too_long(self, became: list[_Step], now_ns: int, usual_step_ns: int) -> bool:
        """A rank that hangs in its step, or raised, does not say what became of it."""
        longest_ns = max(LONGEST_HELD_NS, _STEPS_HELD * usual_step_ns)
        is_open = (one for one, step in zip(self._pending, became, strict=True) if step is _Step.OPEN)
        return any(now_ns - one.read_ns >= longest_ns for one in is_open)


def _first_of(found: list[Nonfinite], seen: list[Nonfinite]) -> Nonfinite:
    """On a device what was sent is known only when all have received it: there, the sender goes first, also one whose
    own scaler skipped the step."""
    earliest = min(found, key=lambda one: one.seen_ns)
    senders = [one for one in seen if one.sent and one.key == earliest.key]
    return min(senders or [earliest], key=lambda one: one.seen_ns)
