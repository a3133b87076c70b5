"""Which NaN or Inf of a replay counts against an edited program: one that `record` reports, too. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.jobs.record.nonfinite_watch import SKIPPED_IN_A_ROW
from prismdbg.model.moment import Moment


@dataclass(slots=True)
class NonfiniteSeen:
    """counts_from: from which moment on one counts that was recorded, too. The recorded rank had the earlier ones, and
    they were not its incident: overflows that its gradient scaler skipped, for instance.

    first: the first that counts. has_passed: there were others.
    """

    counts_from: Moment
    first: Moment | None = None
    has_passed: bool = False
    _is_recorded: bool = False
    _overflow: Moment | None = None  # the last in a step that the replayed rank's scaler skipped
    _skipped: int = 0  # steps with such
    _begun: int = 0  # the step after the last of them

    @classmethod
    def of(cls, incident: Incident, end: Moment) -> NonfiniteSeen:
        """A NaN counts from its step on: another rank may have been the first in it. Of other incidents no recorded one
        counts. `end`: the end moment."""
        if incident.kind is IncidentKind.NAN:
            return cls(Moment(incident.moment.step if incident.moment is not None else 0))
        return cls(Moment(end.step, end.collective + 1))

    def hit(self, moment: Moment, *, departed: bool) -> None:
        if not departed and moment < self.counts_from:
            self.has_passed = True
        elif self.first is None:
            self.first, self._is_recorded = moment, not departed

    def skipped(self, step: int, begun: int) -> None:
        """The replayed rank, which has left the record, skipped this step, and `begun` is the next."""
        if self.first is not None and self.first.step == step and not self._is_recorded:
            self._overflow, self._begun, self.first = self.first, begun, None
            self._skipped, self.has_passed = self._skipped + 1, True

    def lasting(self, reached: Moment) -> Moment | None:
        """An overflow that may be an incident: no whole step followed it, or there were too many."""
        return self._overflow if reached.step <= self._begun or self._skipped >= SKIPPED_IN_A_ROW else None
