"""Where one looks: moves the cursor, chooses lanes, keeps rows, and lets all panes follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from prismdbg.model.moment import Moment
from prismdbg.model.stops import StopReason
from prismdbg_tui.session.cursor import NO_ROWS, Sight
from prismdbg_tui.session.cursor_views import Glance
from prismdbg_tui.session.messages import RowsFound
from prismdbg_tui.session.panes import Panes
from prismdbg_tui.session.verdicts import verdicts_of
from prismdbg_tui.session.views import Phase, State
from prismdbg_tui.timeline.recording import Recording

if TYPE_CHECKING:
    from prismdbg_tui.session.app import PrismApp


class Steering:
    """`sight` is None until the log is read."""

    def __init__(self, app: PrismApp, panes: Panes, glance: Glance) -> None:
        self._app = app
        self._panes = panes
        self._glance = glance
        self.sight: Sight | None = None
        self.filtered_by = ""

    def begin(self, recording: Recording, wanted: Moment | None) -> None:
        self.sight = Sight(recording)
        self._panes.show_recording(recording)
        self.move(self.sight.row_at(wanted) if wanted else recording.first)

    def move(self, row: int) -> None:
        if self.sight is None or not len(self.sight.recording):
            return
        before = self.sight.cursor
        self.sight.move(row)
        self._panes.place(self.sight)
        self._glance.again(elsewhere=before != self.sight.cursor)

    def go_to(self, moment: Moment) -> None:
        if self.sight is not None:
            self.move(self.sight.row_at(moment))

    def found(self, message: RowsFound) -> None:
        assert self.sight is not None
        if message.keeps:
            self.sight.lane = -1
            self._panes.timeline.choose_lane(-1)
            self._keep(message.rows if message.pattern else None, message.pattern)
            return
        self.sight.hits = message.rows if message.pattern else NO_ROWS
        self._panes.collectives.mark(self.sight.hits)
        if message.pattern and not len(message.rows):
            self._app.refuse(f"nothing fits {message.pattern}")
        elif message.pattern:
            self.move(self.sight.first_hit())

    def choose_lane(self, by: int) -> None:
        """All lanes, then one after the other."""
        if self.sight is not None:
            self.sight.choose_lane(by)
            self._panes.timeline.choose_lane(self.sight.lane)
            self._keep(*self.sight.lane_rows())

    def change_lanes(self) -> None:
        """A lane a group, or a lane a rank."""
        if self.sight is not None:
            self.sight.change_lanes()
            self._panes.timeline.show_lanes(self.sight.lanes)
            self._keep(None, "")

    def show_state(self, state: State, *, follow: bool) -> None:
        """`follow`: the cursor goes to where the rank stands."""
        if self.sight is None:
            self._panes.stops.show(state)
            return
        sight = self.sight
        standing = state.phase not in (Phase.LOOKING, Phase.STARTING) and state.runtime
        sight.here = sight.row_of(state.moment) if standing else None
        sight.is_parked = state.phase is Phase.STOPPED and state.reason == StopReason.PARKED
        self._panes.show_session(state, sight, verdicts_of(sight, state))
        self.move(sight.here if follow and sight.here is not None else sight.cursor)

    def _keep(self, rows: NDArray[np.int64] | None, pattern: str) -> None:
        self.filtered_by = pattern
        self._panes.collectives.keep(rows, pattern)
