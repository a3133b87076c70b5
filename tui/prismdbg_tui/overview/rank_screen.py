"""The simulated timeline of one rank: in the lanes and the table that recorded ranks are shown in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import Static

from prismdbg.errors import UsageError
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.overview.help_sheet import OverviewHelp
from prismdbg_tui.overview.keys import LINE_ACTIONS, bindings
from prismdbg_tui.overview.rank_table import RankTable
from prismdbg_tui.overview.simulated import SimulatedRecording
from prismdbg_tui.session.actions import Action
from prismdbg_tui.session.messages import CursorMoved
from prismdbg_tui.widgets.key_bar import KeyBar
from prismdbg_tui.widgets.timeline import Timeline

_ZOOM, _PAN = 0.5, 0.25


class RankScreen(Screen[None]):
    """`title`: which rank, and how far it is to be believed."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(LINE_ACTIONS)
    shown_actions = LINE_ACTIONS

    def __init__(self, recording: SimulatedRecording, title: str, keys: Mapping[str, str]) -> None:
        super().__init__()
        self.recording = recording
        self._title = title
        self.keys_shown = keys
        self.cursor = 0
        self.lanes, self.table = Timeline(), RankTable()
        self._head = Static("", classes="head")
        self._detail = Static("", id="detail", classes="pane")
        self._keybar = KeyBar(keys, live=False, actions=LINE_ACTIONS)

    def compose(self) -> ComposeResult:
        yield self._head
        yield self.lanes
        yield self.table
        yield self._detail
        yield self._keybar

    def on_mount(self) -> None:
        self._detail.border_title = "Under the cursor"
        self.lanes.show(self.recording)
        self.table.show(self.recording)
        self._paint()
        self.table.focus()
        self.move(0)

    def on_resize(self) -> None:
        lanes = 1 if self.size.height < 34 else 2
        self.lanes.styles.height = min(4 + lanes * max(self.lanes.lanes, 1), max(self.size.height // 2, 6))

    def move(self, row: int) -> None:
        if not len(self.recording):
            return
        self.cursor = min(max(row, 0), len(self.recording) - 1)
        self.lanes.place(self.cursor, None)
        self.table.place(self.cursor)
        self._tell()

    def on_cursor_moved(self, message: CursorMoved) -> None:
        message.stop()
        self.move(message.row)

    def on_key_bar_pressed(self, message: KeyBar.Pressed) -> None:
        message.stop()
        self.action_act(message.action_name)

    def unavailable(self, _action: Action) -> str:
        return ""

    def action_act(self, name: str) -> None:
        self.act(name)

    def act(self, name: str) -> None:
        try:
            getattr(self, f"_do_{name}")()
        except UsageError as error:
            self.notify(str(error), severity="warning", timeout=3)

    def _do_earlier(self) -> None:
        self.move(self.cursor - 1)

    def _do_later(self) -> None:
        self.move(self.cursor + 1)

    def _do_page_earlier(self) -> None:
        self.move(self.cursor - max(self.table.size.height - 2, 1))

    def _do_page_later(self) -> None:
        self.move(self.cursor + max(self.table.size.height - 2, 1))

    def _do_first(self) -> None:
        self.move(0)

    def _do_last(self) -> None:
        self.move(len(self.recording) - 1)

    def _do_longer_wait(self) -> None:
        self._wait(-1)

    def _do_next_wait(self) -> None:
        self._wait(1)

    def _wait(self, direction: int) -> None:
        """Waits that can be seen at this zoom."""
        least_ns = self.lanes.view.span / max(self.lanes.size.width, 1)
        rows = np.flatnonzero(self.recording.waited_for_others_ns > least_ns)
        beyond = rows[rows > self.cursor] if direction > 0 else rows[rows < self.cursor][::-1]
        if not len(beyond):
            raise UsageError(
                f"no wait of more than {figures.duration(least_ns)} in this direction: zoom in for shorter ones"
            )
        self.move(int(beyond[0]))

    def _do_zoom_in(self) -> None:
        self.lanes.zoom(_ZOOM)

    def _do_zoom_out(self) -> None:
        self.lanes.zoom(1 / _ZOOM)

    def _do_zoom_all(self) -> None:
        self.lanes.zoom(0)

    def _do_pan_left(self) -> None:
        self.lanes.pan(-_PAN)

    def _do_pan_right(self) -> None:
        self.lanes.pan(_PAN)

    def _do_help(self) -> None:
        self.app.push_screen(OverviewHelp(self.keys_shown, LINE_ACTIONS, table=""))

    def _do_back(self) -> None:
        self.dismiss()

    def _paint(self) -> None:
        head = Text(no_wrap=True, overflow="ellipsis")
        head.append(" ◣ prismdbg ", f"bold {color(self.app, 'accent')}")
        head.append(" simulated ", f"bold reverse {color(self.app, 'warning')}")
        head.append(f"  {figures.clean(self._title)}", "bold")
        self._head.update(head)

    def _tell(self) -> None:
        recording, row = self.recording, self.cursor
        columns = recording.columns
        begun, ended = int(columns.begun_ns[row]), int(columns.ended_ns[row])
        late = int(recording.waited_for_others_ns[row])
        text = Text()
        text.append(figures.clean(recording.label(row)), f"bold {color(self.app, 'accent')}")
        text.append(f"  {recording.group(row).title}", "bold")
        text.append(f"  from {figures.duration(begun)} to {figures.duration(ended)}, {figures.duration(ended - begun)}")
        if late:
            text.append(f"\n{figures.duration(late)} of it waiting for others, then ")
            text.append(f"{figures.duration(ended - begun - late)} of transfer")
        if size := int(columns.size_bytes[row]):
            text.append(f"  {figures.size(size)}", "dim")
        if source := recording.source(row):
            text.append(f"  {source}", "dim")
        self._detail.update(text)
