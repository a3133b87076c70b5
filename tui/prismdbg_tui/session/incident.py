"""What the screen leads with: the finding of `why` about this capsule, and where one can go from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prismdbg.capsule.manifest import IncidentKind
from prismdbg.diagnosis.nonfinite import Birth, FirstNonfinite
from prismdbg.diagnosis.recorded_incidents import RecordedIncident
from prismdbg.diagnosis.verdict import Verdict
from prismdbg.errors import UsageError
from prismdbg.jobs.leading_finding import LeadingFinding
from prismdbg_tui.session.panes import Panes
from prismdbg_tui.session.views import Phase

if TYPE_CHECKING:
    from prismdbg_tui.session.app import PrismApp

_STANDS = (Phase.STOPPED, Phase.FINISHED, Phase.HUNG)


class IncidentLead:
    def __init__(self, app: PrismApp, panes: Panes) -> None:
        self._app = app
        self._panes = panes
        self.finding: LeadingFinding | None = None
        self._is_known = False

    def found(self, finding: LeadingFinding | None) -> None:
        self.finding, self._is_known = finding, True
        self.again()

    def again(self) -> None:
        """The cursor or the rank is somewhere else."""
        if not self._is_known:
            return
        keys = self._app.keys_shown
        ways = [(name, keys[name].split()[0], word) for name, word in self._ways()]
        self._panes.incident.show(self.finding, ways)

    def go(self) -> None:
        if (row := self.row) is None:
            raise UsageError("no finding is about a collective of this rank: open the RUN to see all findings")
        self._app.navigation.move(row)

    @property
    def row(self) -> int | None:
        """Of the collective that it is about, where this rank recorded it. Of what is before the first collective of a
        step, as an exception or a slow step, it is the next one, or the last one."""
        recording, finding = self._app.recording, self.finding
        if recording is None or finding is None or finding.moment is None or not len(recording):
            return None
        exact = recording.exact_row(finding.moment)
        if exact is not None or finding.moment.collective:
            return exact
        return min(recording.columns.row_at(finding.moment), len(recording) - 1)

    def _ways(self) -> Iterator[tuple[str, str]]:
        row, state = self.row, self._app.state
        standing = self._app.live is not None and state.phase in _STANDS
        if row is not None and self._app.cursor != row:
            yield "incident", "show it"
        elif row is not None and standing and self._app.here != row:
            yield "until", "go just before it" if self._is_after(row) else "go there"
        if standing and self.finding is not None and self._is_born_here(self.finding.verdict):
            yield "origin", "find its origin"

    def _is_after(self, row: int) -> bool:
        """Whether it came after the last collective: a key that goes to that one stops before it happens."""
        recording, finding = self._app.recording, self.finding
        if recording is None or finding is None or finding.moment is None:
            return False
        return bool(recording.columns.moment(row) < finding.moment)

    def _is_born_here(self, verdict: Verdict) -> bool:
        """Whether it is a NaN that this rank sent of its own."""
        manifest = self._app.capsule.manifest
        if isinstance(verdict, FirstNonfinite):
            return verdict.birth is Birth.SENT and manifest.rank in verdict.ranks
        return isinstance(verdict, RecordedIncident) and verdict.incident.kind is IncidentKind.NAN
