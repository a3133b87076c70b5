"""Which NaN or Inf of a replay counts against an edited program: one that `record` reports, too. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.jobs.record.nonfinite_watch import SKIPPED_IN_A_ROW
from prismdbg.model.moment import Moment


@dataclass(slots=True)
class NonfiniteSeen:
    """counts_from: from which moment on one counts that was recorded, too. The recorded rank had the earlier ones, and
    they were not its incident: overflows that its gradient scaler skipped, for instance. `end`: the end moment.
    recorded: where the recorded rank had some.

    first: the first that counts. has_passed: there were others. is_where_it_left: one was sent where the replayed rank
    left the record.
    """

    counts_from: Moment
    end: Moment
    recorded: frozenset[Moment] = frozenset()
    has_passed: bool = False
    is_where_it_left: bool = False
    _again: Moment | None = None  # the first of those that count that was recorded, too
    _others: dict[int, Moment] = field(default_factory=dict)  # by step, the first; without skipped steps
    _overflow: Moment | None = None  # the last in a step that the replayed rank's scaler skipped
    _most_in_a_row: int = 0
    _begun: int = -1  # the step after the last of them

    @classmethod
    def of(cls, incident: Incident, end: Moment, recorded: Iterable[Moment]) -> NonfiniteSeen:
        """A NaN counts from its step on: another rank may have been the first in it. Of other incidents no recorded one
        counts."""
        if incident.kind is IncidentKind.NAN:
            counts_from = Moment(incident.moment.step if incident.moment is not None else 0)
        else:
            counts_from = Moment(end.step, end.collective + 1)
        return cls(counts_from, end, frozenset(recorded))

    def hit(self, moment: Moment, left: Moment | None) -> None:
        """`left`: where the replayed rank has left the record."""
        self.is_where_it_left |= moment == left
        if moment < self.counts_from and (left is None or moment in self.recorded):
            self.has_passed = True
        elif left is None and moment <= self.end:
            self._again = self._again or moment
        else:
            self._others.setdefault(moment.step, moment)

    @property
    def first(self) -> Moment | None:
        return self._again or min(self._others.values(), default=None)

    def skipped(self, step: int, begun: int, in_a_row: int) -> None:
        """The replayed rank, which is no longer in the record, skipped this step, and `begun` is the next. in_a_row: so
        many, with this one."""
        overflow = self._others.pop(step, None)
        if overflow is not None:
            self._most_in_a_row = max(self._most_in_a_row, in_a_row)
            self._overflow, self._begun, self.has_passed = overflow, begun, True

    def lasting(self, reached: Moment) -> Moment | None:
        """An overflow that may be an incident: no whole step followed it, or there were too many."""
        return self._overflow if reached.step <= self._begun or self.is_too_many else None

    @property
    def is_too_many(self) -> bool:
        """So many steps in a row were skipped that `record` calls it an incident."""
        return self._most_in_a_row >= SKIPPED_IN_A_ROW
