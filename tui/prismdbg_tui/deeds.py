"""What each action does. The names of the methods are those of `actions`; those of the session go to the rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from prismdbg_tui.actions import BY_NAME, unavailable
from prismdbg_tui.arrangement import PANES
from prismdbg_tui.screens.help import Help

if TYPE_CHECKING:
    from prismdbg_tui.app import PrismApp

_NEXT_ZOOM = 0.5
_PAN = 0.25


class Deeds:
    def __init__(self, app: PrismApp) -> None:
        self._app = app

    def do(self, name: str) -> None:
        """Says why where it cannot be done."""
        action, app = BY_NAME[name], self._app
        if reason := unavailable(action, live=app.live is not None, keys=app.keys_shown):
            app.refuse(reason)
        elif hasattr(self, name):
            getattr(self, name)()
        else:
            app.type_line(action.verb)

    def until(self) -> None:
        recording = self._app.recording
        if recording is not None and len(recording):
            self._app.type_line(f"until {recording.columns.moment(self._app.cursor)}")

    def pause(self) -> None:
        if self._app.live is not None:
            self._app.live.pause()

    def up(self) -> None:
        self._app.choose_frame(by=1)

    def down(self) -> None:
        self._app.choose_frame(by=-1)

    def here(self) -> None:
        if self._app.here is not None:
            self._app.move_cursor(self._app.here)

    def earlier(self) -> None:
        self._app.collectives.action_move(-1)

    def later(self) -> None:
        self._app.collectives.action_move(1)

    def first(self) -> None:
        self._app.collectives.go_to_line(0)

    def last(self) -> None:
        self._app.collectives.go_to_line(self._app.collectives.count - 1)

    def search(self) -> None:
        self._app.prompt.ask(keeps=False, text="")

    def filter(self) -> None:
        self._app.prompt.ask(keeps=True, text=self._app.filtered_by)

    def previous_hit(self) -> None:
        self._hit(-1)

    def next_hit(self) -> None:
        self._hit(1)

    def _hit(self, direction: int) -> None:
        hits, cursor = self._app.hits, self._app.cursor
        if not len(hits):
            self._app.refuse(f"nothing was found: {self._app.keys_shown['search']} searches")
            return
        after = int(np.searchsorted(hits, cursor, side="right"))
        at = after if direction > 0 else int(np.searchsorted(hits, cursor)) - 1
        if not 0 <= at < len(hits):
            self._app.refuse("that was the last hit" if direction > 0 else "that was the first hit")
            return
        self._app.move_cursor(int(hits[at]))

    def group_before(self) -> None:
        self._app.choose_lane(-1)

    def group_after(self) -> None:
        self._app.choose_lane(1)

    def zoom_in(self) -> None:
        self._app.timeline.zoom(_NEXT_ZOOM)

    def zoom_out(self) -> None:
        self._app.timeline.zoom(1 / _NEXT_ZOOM)

    def zoom_all(self) -> None:
        self._app.timeline.zoom(0)

    def pan_left(self) -> None:
        self._app.timeline.pan(-_PAN)

    def pan_right(self) -> None:
        self._app.timeline.pan(_PAN)

    def axis(self) -> None:
        self._app.timeline.change_axis()

    def command(self) -> None:
        self._app.choose_pane("console")

    def pane_after(self) -> None:
        self._pane(1)

    def pane_before(self) -> None:
        self._pane(-1)

    def _pane(self, by: int) -> None:
        at = PANES.index(self._app.pane) if self._app.pane in PANES else 0
        self._app.choose_pane(PANES[(at + by) % len(PANES)])

    def maximise(self) -> None:
        self._app.maximise_pane()

    def copy_moment(self) -> None:
        recording = self._app.recording
        if recording is not None and len(recording):
            moment = str(recording.columns.moment(self._app.cursor))
            self._app.copy_to_clipboard(moment)
            self._app.notify(f"{moment} is in the terminal's clipboard", timeout=2)

    def theme(self) -> None:
        names = sorted(self._app.available_themes)
        self._app.theme = names[(names.index(self._app.theme) + 1) % len(names)]
        self._app.notify(self._app.theme, timeout=1.5)

    def help(self) -> None:
        self._app.push_screen(Help(self._app.keys_shown, live=self._app.live is not None))

    def leave(self) -> None:
        self._app.leave()
