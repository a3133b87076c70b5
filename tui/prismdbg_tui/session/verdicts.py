"""What is said of each collective: by the record alone, and by a replay as far as it came."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismdbg.model.moment import Moment
from prismdbg_tui.session.cursor import CursorPosition
from prismdbg_tui.session.views import State
from prismdbg_tui.timeline.recording import Recording


@dataclass(frozen=True, slots=True)
class Verdict:
    text: str
    bad: bool = False
    good: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """`here`: the rank's row, None where nothing runs; `reached`: the last row that it came to, -1 at first.
    `replayed_from`: the first row that a replay compares."""

    here: int | None = None
    reached: int = -1
    replayed_from: int = 0
    diverged: frozenset[Moment] = frozenset()
    synthesized: frozenset[Moment] = frozenset()

    def pointer(self, row: int) -> str:
        return "▶" if row == self.here else " "

    def of(self, recording: Recording, row: int) -> Verdict:
        replay = self._replayed(recording, row)
        record = _recorded(recording, row)
        if replay is None:
            return record
        return replay if replay.bad or not record.text else Verdict(f"{replay.text[0]} {record.text}", record.bad)

    def compared(self, recording: Recording) -> range:
        """The rows that the replay compared: identical but for those in `diverged` and `synthesized`."""
        if self.here is None:
            return range(0)
        return range(self.replayed_from, min(self.reached, recording.beyond - 1) + 1)

    def _replayed(self, recording: Recording, row: int) -> Verdict | None:
        """None where the replay was not, or says nothing."""
        if row not in self.compared(recording):
            return None
        moment = recording.columns.moment(row)
        if moment in self.diverged:
            return Verdict("≠ diverged", bad=True)
        if moment in self.synthesized:
            return Verdict("~ synthesized")
        return Verdict("= identical", good=True)


def _recorded(recording: Recording, row: int) -> Verdict:
    columns = recording.columns
    if columns.failed[row]:
        return Verdict("failed", bad=True)
    if columns.ended_ns[row] < 0:
        return Verdict(recording.open_word(row), bad=row < recording.beyond)
    if columns.synthesized[row]:
        return Verdict("synthesized")
    if row >= recording.made_up_from:
        return Verdict("")
    if row == recording.first_sent_nonfinite:
        return Verdict("✕ first NaN", bad=True)
    if not recording.is_nonfinite[row]:
        return Verdict("")
    return Verdict("✕ sends NaN" if columns.sent_nonfinite[row] else "✕ gets NaN", bad=True)


def verdicts_of(position: CursorPosition, state: State) -> Verdicts:
    replayed_from = int(np.searchsorted(position.recording.columns.record_id, state.first_record))
    return Verdicts(
        here=position.here,
        reached=position.reached,
        replayed_from=replayed_from,
        diverged=state.diverged,
        synthesized=state.synthesized,
    )
