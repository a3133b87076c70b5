"""Where one looks: moves the cursor, chooses lanes, keeps rows, and lets all panes follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from prismdbg.model.breakpoints import StopReason
from prismdbg.model.moment import Moment
from prismdbg_tui.session.cursor import NO_ROWS, CursorPosition
from prismdbg_tui.session.cursor_views import CursorViews
from prismdbg_tui.session.messages import RowsFound
from prismdbg_tui.session.panes import Panes
from prismdbg_tui.session.verdicts import verdicts_of
from prismdbg_tui.session.views import Phase, State
from prismdbg_tui.timeline.recording import Recording

if TYPE_CHECKING:
    from prismdbg_tui.session.app import PrismApp


class CursorNavigation:
    """`sight` is None until the log is read."""

    def __init__(self, app: PrismApp, panes: Panes, views: CursorViews) -> None:
        self._app = app
        self._panes = panes
        self._views = views
        self.position: CursorPosition | None = None
        self.filtered_by = ""

    def begin(self, recording: Recording, wanted: Moment | None) -> None:
        self.position = CursorPosition(recording)
        self._panes.show_recording(recording)
        self.move(self.position.row_at(wanted) if wanted else recording.first)

    def move(self, row: int, number: int = 0) -> None:
        """`number`: as `CursorMoved` has it."""
        if self.position is None or not len(self.position.recording):
            return
        before = self.position.cursor
        self.position.move(row)
        self._panes.place(self.position, number)
        self._app.incident.again()
        self._views.again(elsewhere=before != self.position.cursor)

    def go_to(self, moment: Moment) -> None:
        if self.position is not None:
            self.move(self.position.row_at(moment))

    def found(self, message: RowsFound) -> None:
        assert self.position is not None
        if message.keeps:
            self.position.lane = -1
            self._panes.timeline.choose_lane(-1)
            self._keep(message.rows if message.pattern else None, message.pattern)
            return
        self.position.hits = message.rows if message.pattern else NO_ROWS
        self._panes.collectives.mark(self.position.hits)
        if message.pattern and not len(message.rows):
            self._app.refuse(f"no collective matches {message.pattern}")
        elif message.pattern:
            self.move(self.position.first_hit())

    def choose_lane(self, by: int) -> None:
        """All lanes, then one after the other."""
        if self.position is not None:
            self.position.choose_lane(by)
            self._panes.timeline.choose_lane(self.position.lane)
            self._keep(*self.position.lane_rows())

    def change_lanes(self) -> None:
        """A lane a group, or a lane a rank."""
        if self.position is not None:
            self.position.change_lanes()
            self._panes.timeline.show_lanes(self.position.lanes)
            self._keep(None, "")

    def show_state(self, state: State, *, follow: bool) -> None:
        """`follow`: the cursor goes to where the rank stands."""
        if self.position is None:
            self._panes.stops.show(state, self._app.notes.all)
            return
        position = self.position
        standing = state.phase not in (Phase.LOOKING, Phase.STARTING) and state.runtime
        position.here = position.row_of(state.moment) if standing else None
        position.is_past_end = bool(standing) and (
            position.is_after_last(state.moment) or position.is_after_log(state.moment)
        )
        is_parked = state.phase is Phase.STOPPED and state.reason == StopReason.PARKED
        position.reached = position.last_row(state.moment) - is_parked
        self._panes.show_session(state, position, verdicts_of(position, state), self._app.notes.all)
        self.move(position.here if follow and position.here is not None else position.cursor)

    def _keep(self, rows: NDArray[np.int64] | None, pattern: str) -> None:
        self.filtered_by = pattern
        self._panes.collectives.keep(rows, pattern)
