"""What one looks at: the cursor's row, the hits of a search, the lane that alone is shown. Knows no widget."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment
from prismdbg_tui.timeline.rank_sets import Lanes
from prismdbg_tui.timeline.recording import Recording

Ints = NDArray[np.int64]
NO_ROWS: Ints = np.zeros(0, dtype=np.int64)


class CursorPosition:
    """`cursor` is a row of the recording; `here` the row of the rank, None where nothing runs. reached: the last row
    that it ran, -1 where there is none yet. is_past_end: the rank is in a collective after the last row."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.cursor = 0
        self.here: int | None = None
        self.reached = -1
        self.is_past_end = False
        self.hits = NO_ROWS
        self.lane = -1
        self.by_rank = False

    def move(self, row: int) -> None:
        self.cursor = min(max(row, 0), max(len(self.recording) - 1, 0))

    def row_at(self, moment: Moment) -> int:
        """The first row at or after it; what lies between two collectives belongs to the one before."""
        return self.recording.columns.row_at(Moment(moment.step, moment.collective))

    def last_row(self, moment: Moment) -> int:
        """The last row at or before it, -1 where there is none."""
        exact = self.recording.exact_row(moment)
        return exact if exact is not None else self.row_at(moment) - 1

    def is_after_last(self, moment: Moment) -> bool:
        """Whether it is a collective that comes after all recorded ones."""
        return moment.collective > 0 and self.row_at(moment) >= len(self.recording)

    def is_after_log(self, moment: Moment) -> bool:
        """Whether the log says nothing of it; the step that begins after its last collective still belongs to it."""
        if not len(self.recording):
            return False
        last = self.recording.columns.moment(len(self.recording) - 1)
        return self.is_after_last(moment) or moment.step > last.step + 1

    def row_of(self, moment: Moment) -> int:
        """Of a rank: between two collectives it has the later one still before it."""
        return max(self.last_row(moment), 0)

    @property
    def moment(self) -> Moment:
        return self.recording.columns.moment(self.cursor)

    @property
    def lanes(self) -> Lanes:
        return self.recording.by_rank if self.by_rank else self.recording.by_group

    @property
    def is_to_come(self) -> bool:
        """Whether the rank has still to run its own row: it is as it was captured, or before its first one."""
        return self.here is not None and self.reached < self.here

    def choose_lane(self, by: int) -> None:
        """All, then one after the other."""
        self.lane = (self.lane + 1 + by) % (len(self.lanes) + 1) - 1

    def lane_rows(self) -> tuple[Ints | None, str]:
        """The rows of the chosen lane, and its title; None for all of them."""
        if self.lane < 0:
            return None, ""
        return self.lanes.rows(self.lane, self.recording.rank_sets), self.lanes.all[self.lane].title

    def change_lanes(self) -> None:
        self.by_rank, self.lane = not self.by_rank, -1

    def first_hit(self) -> int:
        """At the cursor or after it, else the first of all."""
        return int(self.hits[int(np.searchsorted(self.hits, self.cursor)) % len(self.hits)])

    def next_hit(self, direction: int) -> int:
        after = int(np.searchsorted(self.hits, self.cursor, side="right"))
        at = after if direction > 0 else int(np.searchsorted(self.hits, self.cursor)) - 1
        if not 0 <= at < len(self.hits):
            raise UsageError("already at the last match" if direction > 0 else "already at the first match")
        return int(self.hits[at])
